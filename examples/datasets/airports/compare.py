"""Names the airport and month with the largest share of late flights, from one part for each airport."""

import csv

from nimbus.task import context

task = context()
parts = task.reads["parts"]
shares = {}
for part in parts:
    with (part.path / "months.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            shares[part.item["name"], int(row["month"])] = int(row["late"]) / int(row["flights"])
airport, month = max(shares, key=shares.get)
task.result(
    flights=sum(part.value["flights"] for part in parts),
    late={part.key: part.value["late"] for part in parts},
    worst=f"{airport} in month {month}",
)
