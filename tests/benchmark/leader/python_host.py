"""One process of a Python contender, which holds a third of the participants.

    python -m tests.benchmark.leader.python_host ours|kazoo HOSTS PATH SESSION_MS

Reads commands from standard input, one a line, and answers on standard output:

| command | answer |
| --- | --- |
| `clock` | `clock NS` |
| `join P` | `leads P NS EPOCH`, once that participant leads |
| `close P` | `closed P CALLED_NS RETURNED_NS` |
| `quit`, or the end of input | the process ends |

Standard library and kazoo's threads apart, commands are obeyed by the main thread.
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Protocol

from tests.benchmark.leader.clock import now_ns


class Side(Protocol):
    """One contender's participants in this process."""

    def join(self, participant: int) -> None:
        """Queue at the end, with a new latch."""
        ...

    def close(self, participant: int) -> tuple[int, int]:
        """Leave; the moments of the call and of its return, in ns."""
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


def _side(contender: str, hosts: str, path: str, session_timeout: timedelta) -> Side:
    if contender == "kazoo":
        from tests.benchmark.leader.kazoo_side import KazooSide

        return KazooSide(hosts, path, session_timeout, _leads)
    from tests.benchmark.leader.our_side import OurSide

    return OurSide(hosts, path, session_timeout, _leads)


def main(arguments: list[str]) -> int:
    contender, hosts, path, session_ms = arguments
    side = _side(contender, hosts, path, timedelta(milliseconds=int(session_ms)))
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
            case ["quit"]:
                break
            case words:
                say(f"error unknown words {words}")
    side.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
