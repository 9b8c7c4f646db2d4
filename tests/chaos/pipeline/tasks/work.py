"""Works for some seconds and writes into a journal that it lives: at its start, all the while, at its end.

A killed execution has no last line, but its last sign of life is at most TICK_S before its death.
"""

import json
import os
import sys
import time

from nimbus.task import context

TICK_S = 0.02


def main() -> None:
    ctx = context()
    seconds = float(sys.argv[2]) * float(sys.argv[3])
    attempt = f"{ctx.run_id}.{ctx.task}.{ctx.attempt}"
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(event: str) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # one clock for all processes of this machine
        line = {"attempt": attempt, "pid": os.getpid(), "event": event, "at_ns": now_ns}
        os.write(journal, (json.dumps(line) + "\n").encode())  # one write: lines do not mix

    note("start")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(TICK_S)
        note("alive")
    (ctx.output / "worked.txt").write_text(attempt, encoding="utf-8")
    note("end")
    sys.stdout.write(f"{attempt} worked for {seconds:g} s\n")


if __name__ == "__main__":
    main()
