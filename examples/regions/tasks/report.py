"""Comes after all regions."""

import sys

from nimbus.task import context


def main() -> None:
    sys.stdout.write(f"all regions of {context().logical_date:%Y-%m-%d} are loaded\n")


if __name__ == "__main__":
    main()
