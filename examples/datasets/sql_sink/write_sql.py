"""Replaces the run's day in a table of a SQLite database, whose file is the argument."""

import csv
import sqlite3
import sys
from contextlib import closing

from nimbus import tables
from nimbus.task import context

task = context()
day = f"{task.data_interval_start:%Y-%m-%d}"
(flown,) = task.reads["flown"]
with (flown.path / "flown.csv").open(newline="") as file:
    rows = [(day, row["flights"], row["miles"]) for row in csv.DictReader(file)]
with closing(sqlite3.connect(sys.argv[1], timeout=60)) as connection:
    connection.execute(tables.sql.CREATE_MARKS)
    connection.execute("CREATE TABLE IF NOT EXISTS flown (day text, flights integer, miles integer)")
    with tables.sql.replace(connection, "flown", "day = ?", [day]) as cursor:
        cursor.executemany("INSERT INTO flown VALUES (?, ?, ?)", rows)
task.result(day=day, rows=len(rows))
