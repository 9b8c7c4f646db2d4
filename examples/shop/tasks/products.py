"""Make the price list: 50 products in five categories, as CSV. Plain Python; the same list each time."""

import csv
import random

from nimbus.task import context

CATEGORIES = ("books", "garden", "games", "kitchen", "tools")
PRODUCTS = 50


def main() -> None:
    chance = random.Random(1)
    with (context().output / "products.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        for number in range(PRODUCTS):
            rows.writerow((number, CATEGORIES[number % len(CATEGORIES)], chance.randrange(200, 20_000)))


if __name__ == "__main__":
    main()
