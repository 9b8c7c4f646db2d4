"""Fails if an order has no amount: then nothing is published."""

import csv

from nimbus.task import context

task = context()
with (task.inputs["load"] / "orders.csv").open(newline="") as file:
    amounts = [float(row["amount"]) for row in csv.DictReader(file)]
if not amounts or min(amounts) <= 0:
    raise SystemExit("an order has no amount")
task.result(rows=len(amounts))
