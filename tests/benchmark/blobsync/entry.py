"""A contender in one case: the preparation, the timed part, the check afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.sample import Work


def _nothing(_place: Path) -> None:
    pass


@dataclass(frozen=True)
class Entry:
    """See the module. All are given the place of the run, which is new and does not exist.

    Args:
        name: For options and figures.
        label: For the table.
        run: Timed, by itself or by the process that works.
        is_command: It starts processes, whose CPU time is theirs and not that of a process we know.
        prepare: Before, untimed; written back to the disk before the run.
        finish: Afterwards, untimed.
        tree: Where its files are then, to be compared once; None: nothing to compare.
    """

    name: str
    label: str
    run: Callable[[Path], Work]
    is_command: bool
    prepare: Callable[[Path], None] = _nothing
    finish: Callable[[Path], None] = _nothing
    tree: Callable[[Path], Path] | None = None


@dataclass(frozen=True)
class Case:
    """Contenders that are compared with one another.

    Args:
        expected: SHA-256 by path of the files that must be there afterwards; None: not compared.
        run_bytes: What one run writes, roughly.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    expected: dict[str, str] | None = None
    run_bytes: int = 0
