"""The journal of the chaos pipeline's executions: when each was alive. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


class BrokenJournalError(Exception):
    """A line is invalid, so no conclusion can be drawn from the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a task's code."""

    attempt: str
    """Attempt id: `<run>.<task>.<number>`."""
    pid: int
    start_ns: int
    last_ns: int
    """Its last sign of life."""
    ended: bool
    """It reached its end; otherwise it was killed, or is running."""

    @property
    def run(self) -> str:
        """The run it belongs to."""
        return self.attempt.rsplit(".", 2)[0]

    @property
    def task(self) -> str:
        """The task whose code it was."""
        return self.attempt.rsplit(".", 2)[1]

    @property
    def number(self) -> int:
        """Number of the attempt."""
        return int(self.attempt.rsplit(".", 2)[2])


def read_journal(lines: Iterable[str]) -> list[Execution]:
    """All executions, in the order of their starts.

    Two executions of one attempt are separate, even if their processes have the same pid.

    Raises:
        BrokenJournalError: a line is not a sign of life, or it is of an execution that never started.
    """
    open_ones: dict[tuple[str, int], Execution] = {}
    done: list[Execution] = []
    for line in lines:
        attempt, pid, event, at_ns = _parsed(line)
        key = (attempt, pid)
        if event == "start":
            if key in open_ones:
                done.append(open_ones.pop(key))
            open_ones[key] = Execution(attempt=attempt, pid=pid, start_ns=at_ns, last_ns=at_ns, ended=False)
            continue
        known = open_ones.pop(key, None)
        if known is None:
            raise BrokenJournalError(f"{attempt} in process {pid} lives without having started: {line!r}")
        ended = event == "end"
        now = Execution(attempt=attempt, pid=pid, start_ns=known.start_ns, last_ns=at_ns, ended=ended)
        if ended:
            done.append(now)
        else:
            open_ones[key] = now
    return sorted([*done, *open_ones.values()], key=lambda each: each.start_ns)


def _parsed(line: str) -> tuple[str, int, str, int]:
    try:
        found = json.loads(line)
        parsed = (str(found["attempt"]), int(found["pid"]), str(found["event"]), int(found["at_ns"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise BrokenJournalError(f"{line!r} is no line of a journal: {exc}") from exc
    if parsed[2] not in ("start", "alive", "end") or parsed[0].count(".") < 2:
        raise BrokenJournalError(f"{line!r} is no line of a journal")
    return parsed
