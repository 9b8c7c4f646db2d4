"""Prints some lines. The files `hold-TASK` and `fail-TASK` in the folder of gates make it wait or fail."""

import sys
import time
from pathlib import Path

from nimbus.task import context


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    task, gates, rows = context().task, Path(sys.argv[1] or "/nowhere"), int(sys.argv[2])
    for row in range(rows):
        say(f"{task}: row {row} of {rows}")
    tick = 0
    while (gates / f"hold-{task}").exists():
        say(f"{task}: tick {tick}")
        tick += 1
        time.sleep(0.1)
    if (gates / f"fail-{task}").exists():
        sys.exit(f"{task}: 3 orders have no customer")


if __name__ == "__main__":
    main()
