"""Names the airport and month with the largest share of late flights, from one part for each airport."""

import csv

from nimbus.task import context

task = context()
shares = {}
for part in task.reads["parts"]:
    with (part.path / "months.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            shares[part.item, int(row["month"])] = int(row["late"]) / int(row["flights"])
airport, month = max(shares, key=shares.get)
task.result(
    flights=sum(part.value["flights"] for part in task.reads["parts"]),
    late={part.item: part.value["late"] for part in task.reads["parts"]},
    worst=f"{airport} in month {month}",
)
