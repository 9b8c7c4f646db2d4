"""Replaces the run's day in a Delta table, whose place is the argument."""

import sys

import pyarrow as pa
from pyarrow import csv

from nimbus import tables
from nimbus.task import context

task = context()
day = f"{task.data_interval_start:%Y-%m-%d}"
(flown,) = task.reads["flown"]
rows = csv.read_csv(flown.path / "flown.csv")
rows = rows.append_column("day", pa.array([day] * len(rows)))
tables.delta.replace(sys.argv[1], rows, where=f"day = '{day}'")
task.result(day=day, rows=len(rows))
