"""Joins orders with their customers."""

import shutil
import time

from nimbus.task import context


def main() -> None:
    time.sleep(3)
    shutil.copy(context().inputs["clean_orders"] / "orders_clean.csv", context().output / "joined.csv")
    print("INFO  joined", flush=True)


if __name__ == "__main__":
    main()
