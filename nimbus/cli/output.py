"""Where words go: data, as tables or JSON, on standard output; messages on standard error.

No colours without a terminal, or with NO_COLOR.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from nimbus.domain.harmless import CONTROLS, harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 1_000
"""Rich would fold tables to 80 columns where there is no terminal, and `grep` would see halves of lines."""

output_option: Callable[..., Any] = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables for people, JSON for machines.",
)

STATE_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "leader": "green",
    "ready": "green",
    "active": "green",
    "ok": "green",
    "failed": "red",
    "fail": "red",
    "lost": "red",
    "timed_out": "red",
    "quarantined": "red",
    "stopping": "yellow",
    "stopped": "yellow",
    "warn": "yellow",
    "waiting": "yellow",
    "queued": "yellow",
    "paused": "yellow",
    "skipped": "dim",
    "not_run": "dim",
}


class Output:
    """What one command prints."""

    def __init__(self, form: str = "table") -> None:
        self.as_json = form == "json"

    def data(self, document: Any) -> None:
        """Print a JSON document."""
        written = json.dumps(document, indent=2, ensure_ascii=False)
        # What JSON leaves as it is stands within its strings, where its \u form is the same character.
        click.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", written))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "nothing") -> None:
        """Print a table, or say on standard error that there is nothing."""
        if not rows:
            self.note(empty)
            return
        console().print(make_table(columns, rows))

    def line(self, text: str) -> None:
        """Print a line of data."""
        click.echo(harmless(text))

    def note(self, text: str) -> None:
        """Say something to the person; never part of the data."""
        click.echo(harmless(text), err=True)


def console(*, stderr: bool = False) -> Console:
    """A console on standard output or error as it is now; tests and pipes replace them."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def make_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Build a table; words that are states are coloured."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = ["" if value is None else harmless(str(value)) for value in row]
        # Text, not markup: a reason may hold brackets.
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in cells))
    return table
