"""Checks that no product has a negative stock."""

import json
import time

from nimbus.task import context


def negative(products: list[dict[str, object]]) -> list[str]:
    return [str(product["id"]) for product in products if int(str(product["amount"])) < 0]


def check(products: list[dict[str, object]]) -> None:
    found = negative(products)
    if found:
        raise ValueError(f"{len(found)} products have a negative stock: {', '.join(found)}")


def main() -> None:
    products = json.loads((context().inputs["stock"] / "stock.json").read_text())
    print(f"INFO  check {len(products)} products", flush=True)
    time.sleep(1.5)
    check(products)
    print("INFO  no product has a negative stock", flush=True)


if __name__ == "__main__":
    main()
