"""Writes the orders of the run's hour."""

import csv

from nimbus.task import context

task = context()
hour = task.data_interval_start
with (task.output / "orders.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(("hour", "order", "amount"))
    rows.writerows((hour.isoformat(), f"{hour:%H}-{number}", 10 * number) for number in range(1, 4))
