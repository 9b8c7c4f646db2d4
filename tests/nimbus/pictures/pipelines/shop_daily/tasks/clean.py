"""Drops orders without a customer and orders that came twice."""

import csv
import time

from nimbus.task import context

LEAST_AMOUNT = 1


def main() -> None:
    rows = list(csv.DictReader((context().inputs["orders"] / "orders.csv").open()))
    kept = [row for row in rows if int(row["amount"]) >= LEAST_AMOUNT]
    print(f"WARNING  {len(rows) - len(kept)} orders without an amount are dropped", flush=True)
    time.sleep(2.5)
    with (context().output / "orders_clean.csv").open("w") as file:
        writer = csv.DictWriter(file, ["id", "day", "amount"])
        writer.writeheader()
        writer.writerows(kept)
    context().result(rows=len(kept), dropped=len(rows) - len(kept))


if __name__ == "__main__":
    main()
