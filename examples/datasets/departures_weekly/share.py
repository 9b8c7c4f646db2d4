"""Computes the share of flights that left 15 minutes late or later, by origin."""

import csv
from collections import Counter

from nimbus.task import context

task = context()
flights, late = Counter(), Counter()
for day in task.reads["days"]:
    with (day.path / "departures.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            flights[row["origin"]] += 1
            late[row["origin"]] += int(row["delay_minutes"]) >= 15
with (task.output / "late.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(("origin", "flights", "late"))
    rows.writerows((origin, flights[origin], late[origin]) for origin in sorted(flights))
task.result(days=len(task.reads["days"]), flights=flights.total(), late=late.total())
