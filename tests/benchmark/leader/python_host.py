"""One process of a Python contender, which holds a third of the participants.

    python -m tests.benchmark.leader.python_host ours|latch|kazoo HOSTS PATH SESSION_MS [traced]

It reads commands from standard input, one on each line, and answers on standard output:

| command | answer |
| --- | --- |
| `clock` | `clock NS` |
| `join P` | `leads P NS EPOCH`, once that participant leads |
| `close P` | `closed P CALLED_NS RETURNED_NS` |
| `cost P PAIRS` | `json {...}`: costs of a leader, see call_cost.py; ours only |
| `trace` | `json [[NS, WORDS], ...]`: notes since the last `trace`; needs the argument `traced` |
| `quit`, or the end of input | the process ends |

The main thread runs all commands.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import timedelta
from typing import Protocol

from tests.benchmark.leader import our_trace
from tests.benchmark.leader.clock import now_ns
from tests.benchmark.leader.kazoo_trace import Trace


class Side(Protocol):
    """One contender's participants in this process."""

    def join(self, participant: int) -> None:
        """Queue at the end, with a new latch."""
        ...

    def close(self, participant: int) -> tuple[int, int]:
        """Leave the queue. Returns the times of the call and of its return, in ns."""
        ...

    def cost(self, participant: int, pairs: int) -> dict[str, float]:
        """Measure the costs of a leader, see call_cost.py."""
        ...

    def end(self) -> None:
        """Close everything."""
        ...


_printing = threading.Lock()


def say(line: str) -> None:
    with _printing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _leads(participant: int, at_ns: int, epoch: int) -> None:
    say(f"leads {participant} {at_ns} {epoch}")


def _side(contender: str, hosts: str, path: str, session_timeout: timedelta, trace: Trace | None) -> Side:
    if contender == "kazoo":
        from tests.benchmark.leader.kazoo_side import KazooSide

        return KazooSide(hosts, path, session_timeout, _leads)
    if contender == "latch":
        from tests.benchmark.leader.latch_side import LatchSide

        return LatchSide(hosts, path, session_timeout, _leads)
    from tests.benchmark.leader.our_side import OurSide

    note = None if trace is None else trace.note
    return OurSide(hosts, path, session_timeout, _leads, note)


def main(arguments: list[str]) -> int:
    contender, hosts, path, session_ms, *more = arguments
    trace = Trace() if "traced" in more else None
    if trace is not None:
        trace.install()
        our_trace.install(trace)
    side = _side(contender, hosts, path, timedelta(milliseconds=int(session_ms)), trace)
    say("ready")
    for line in sys.stdin:
        match line.split():
            case ["clock"]:
                say(f"clock {now_ns()}")
            case ["join", participant]:
                side.join(int(participant))
            case ["close", participant]:
                called, returned = side.close(int(participant))
                say(f"closed {participant} {called} {returned}")
            case ["cost", participant, pairs]:
                say(f"json {json.dumps(side.cost(int(participant), int(pairs)))}")
            case ["trace"] if trace is not None:
                say(f"json {json.dumps(trace.taken())}")
            case ["quit"]:
                break
            case words:
                say(f"error unknown command {words}")
    side.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
