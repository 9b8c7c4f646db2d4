"""Make the orders of a day. Replace this by your own source."""

import csv
import random
import sys
from collections.abc import Iterator

from nimbus.task import context


def orders_of(day: str, count: int) -> Iterator[tuple[str, str, int]]:
    """Day, customer and cents of each order; the same ones each time."""
    chance = random.Random(day)
    for _ in range(count):
        yield day, f"customer-{chance.randrange(20)}", chance.randrange(100, 50_000)


def main() -> None:
    with (context().output / "orders.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("day", "customer", "cents"))
        rows.writerows(orders_of(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
