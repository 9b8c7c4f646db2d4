"""Prints some MiB, with one word in the middle; then a line periodically until the gate is removed."""

import sys
import time
from pathlib import Path

LINE = f"{'record with nothing to tell':<63}\n"
"""64 bytes."""
LINES_OF_A_MIB = (1 << 20) // len(LINE)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    mebibytes, gate = int(sys.argv[1]), Path(sys.argv[2])
    for number in range(mebibytes):
        sys.stdout.write(LINE * LINES_OF_A_MIB)
        if number == mebibytes // 2:
            say("here is the walrus")
    tick = 0
    while gate.exists():
        say(f"tick {tick}")
        tick += 1
        time.sleep(0.1)
    say("the last of the penguins")


if __name__ == "__main__":
    main()
