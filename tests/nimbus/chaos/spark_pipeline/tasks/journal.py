"""Records in a journal that an attempt is alive: at its start, periodically, at its end.

`operation.py` lets the Spark Connect server run this as a program, with journal, attempt and seconds.
It does not check whether the server is alive.
"""

import json
import os
import sys
import time
from collections.abc import Callable

TICK_S = 0.02


def until(seconds: float) -> Callable[[], bool]:
    """A function that returns True for that many seconds."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def live(journal: str, attempt: str, goes_on: Callable[[], bool]) -> None:
    """Record it while `goes_on` returns True."""
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(event: str) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # one clock for all processes of this machine
        line = {"attempt": attempt, "pid": os.getpid(), "event": event, "at_ns": now_ns}
        os.write(file, (json.dumps(line) + "\n").encode())  # one write: lines do not mix

    note("start")
    while goes_on():
        time.sleep(TICK_S)
        note("alive")
    note("end")


if __name__ == "__main__":
    live(sys.argv[1], sys.argv[2], until(float(sys.argv[3])))
    sys.stdout.write("worked\n")
