"""Writes the flights of the day that departed, with their delay in minutes."""

import csv

from nimbus.task import context

task = context()
departed = cancelled = 0
with (task.output / "departures.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(("origin", "carrier", "flight", "delay_minutes"))
    for hour in task.reads["hours"]:
        with (hour.path / "flights.csv").open(newline="") as flights:
            for flight in csv.DictReader(flights):
                if flight["dep_delay"] in ("", "NA"):
                    cancelled += 1
                    continue
                departed += 1
                rows.writerow(
                    (flight["origin"], flight["carrier"], flight["flight"], int(float(flight["dep_delay"])))
                )
task.result(departed=departed, cancelled=cancelled)
