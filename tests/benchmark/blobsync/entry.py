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
    """See the module. Each function gets the path of the run's folder, which is new and does not exist yet.

    Args:
        name: Its name in options and in the JSON file.
        label: Its name in the table.
        run: The timed part. It measures itself, or the process that does the work measures it.
        is_command: Whether it starts new processes, so that no long-lived process shows its CPU time.
        prepare: Called before, not timed. What it writes is flushed to the disk before the run.
        finish: Called afterwards, not timed.
        tree: Returns the folder of its files, which are compared once; None: nothing to compare.
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
        expected: SHA-256 by path of the files that must exist afterwards; None: not compared.
        run_bytes: Roughly how many bytes one run writes.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    expected: dict[str, str] | None = None
    run_bytes: int = 0
