"""Works for some seconds and records in a journal that it is alive: at its start, periodically, at its end.

If it gets a folder with gates, it works until that folder has a file with its name.

A killed execution has no last line, but its last sign of life is at most TICK_S before its death.
"""

import json
import os
import sys
import time
from pathlib import Path

from nimbus.task import context

TICK_S = 0.02


def is_open(gate: Path | None) -> bool:
    return gate is None or gate.exists()


def main() -> None:
    ctx = context()
    seconds = float(sys.argv[2]) * float(sys.argv[3])
    attempt = f"{ctx.run_id}.{ctx.task}.{ctx.attempt}"
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(event: str) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # one clock for all processes of this machine
        line = {"attempt": attempt, "pid": os.getpid(), "event": event, "at_ns": now_ns}
        os.write(journal, (json.dumps(line) + "\n").encode())  # one write: lines do not mix

    gate = Path(sys.argv[4]) / ctx.task if len(sys.argv) > 4 and sys.argv[4] else None
    note("start")
    until = time.monotonic() + seconds
    while time.monotonic() < until or not is_open(gate):
        time.sleep(TICK_S)
        note("alive")
    (ctx.output / "worked.txt").write_text(attempt, encoding="utf-8")
    note("end")
    sys.stdout.write(f"{attempt} worked for {seconds:g} s\n")


if __name__ == "__main__":
    main()
