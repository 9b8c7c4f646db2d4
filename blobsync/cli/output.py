"""Sizes, tables and progress bars, for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Show = Callable[[str, int, int], None]
"""Updates the bar of a task. Arguments: name of the task, bytes done, bytes in total."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(size_bytes: float) -> str:
    """`0 B`, `17 B`, `1.5 MiB`."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as a table. The first row has the headings."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


DAMAGED_RELEASE = "its manifest or layout is damaged"
"""Shown for a release of which nothing else is known."""


def is_watched() -> bool:
    """True if standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def bars() -> Iterator[Show]:
    """Show bars on standard error if it is a terminal, and remove them at the end."""
    if not is_watched():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(what: str, done_bytes: int, total_bytes: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=None)
            progress.update(tasks[what], completed=done_bytes, total=total_bytes)

        yield show
