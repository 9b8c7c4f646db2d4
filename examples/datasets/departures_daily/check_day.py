"""Fails if a delay is impossible: then the day is not published, and nobody reads it."""

import csv

from nimbus.task import context

task = context()
with (task.inputs["clean"] / "departures.csv").open(newline="") as file:
    delays = [int(row["delay_minutes"]) for row in csv.DictReader(file)]
if any(not -120 <= delay <= 2880 for delay in delays):
    raise SystemExit("a flight left two hours early, or two days late")
task.result(rows=len(delays))
