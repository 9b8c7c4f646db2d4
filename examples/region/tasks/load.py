"""Load one region for one day. This example only writes a line of text."""

import sys

from nimbus.task import context


def main() -> None:
    region, day = sys.argv[1:]
    (context().output / "loaded.txt").write_text(f"{region} {day}\n", encoding="utf-8")
    sys.stdout.write(f"loaded {region} for {day}\n")


if __name__ == "__main__":
    main()
