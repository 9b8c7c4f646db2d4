"""The file that all tasks of all products append to: the only source of the times at which their code ran.

A line, written with one write: `start|end`, the wall clock in ns, the pid, run, task, number of the attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.benchmark.blobsync.line_process import BenchFailedError


class Mark(NamedTuple):
    """One line."""

    what: str
    at_ns: int
    pid: int
    run: str
    task: str
    attempt: int

    @property
    def key(self) -> tuple[str, str, int]:
        """The attempt."""
        return self.run, self.task, self.attempt


def read_marks(file: Path) -> list[Mark]:
    """Read all marks; none if there is no file."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        what, at_ns, pid, run, task, attempt = line.split()
        found.append(Mark(what, int(at_ns), int(pid), run, task, int(attempt)))
    return found


def count_ends(file: Path) -> int:
    """How many tasks have ended."""
    data = file.read_bytes() if file.exists() else b""
    return data.count(b"\nend ") + data.startswith(b"end ")


def check_once(marks: Iterable[Mark], tasks: int) -> None:
    """Check that each task has run exactly once, from its start to its end.

    Raises:
        BenchFailedError: it has not.
    """
    marks = list(marks)
    for what in ("start", "end"):
        counted = Counter((mark.run, mark.task) for mark in marks if mark.what == what)
        twice = [key for key, times in counted.items() if times > 1]
        if len(counted) != tasks or twice:
            raise BenchFailedError(
                f"{tasks} tasks must {what} once: {len(counted)} did; repeated: {twice[:5]}"
            )


def gaps_ms(marks: Iterable[Mark]) -> list[float]:
    """For chains: times from the end of each task to the start of the next task of its run."""
    starts: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for mark in marks:
        (starts if mark.what == "start" else ends).setdefault(mark.run, []).append(mark.at_ns)
    return [
        (start - end) / 1e6
        for run, ended in ends.items()
        for end, start in zip(sorted(ended), sorted(starts[run])[1:], strict=False)
    ]


def span_s(marks: Iterable[Mark]) -> float:
    """From the first start to the last end."""
    times = [mark.at_ns for mark in marks]
    return (max(times) - min(times)) / 1e9
