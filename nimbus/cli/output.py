"""Output of commands: data, as tables or JSON, on standard output; messages on standard error.

No colours without a terminal, or with NO_COLOR.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from nimbus.domain.wording import CONTROLS, escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def moment(text: str | None) -> datetime | None:
    """Parse a time of the API."""
    return datetime.fromisoformat(text) if text else None


def clock(text: str | None) -> str:
    """`2026-03-01 06:00:00Z`, or nothing."""
    at = moment(text)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if at else ""


def span(seconds: float | None) -> str:
    """`0.4s`, `12s`, `3m05s`, `2h10m`, `4d02h`; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes}m{rest:02d}s"
    days, hours = divmod(hours, 24)
    return f"{hours}h{minutes:02d}m" if days == 0 else f"{days}d{hours:02d}h"


def between(start: str | None, end: str | None, now: datetime) -> str:
    """The time from `start` to `end`, or until now."""
    began, ended = moment(start), moment(end) or now
    return span((ended - began).total_seconds()) if began else ""


def on_worker(attempt: Mapping[str, Any]) -> str:
    """` on w1`; nothing for an attempt of child runs, which no worker runs."""
    return f" on {attempt['worker']}" if attempt["worker"] else ""


def short(digest: str | None) -> str:
    """A digest, shortened but still unique."""
    return digest[:12] if digest else ""


Columns = Mapping[str, str | Callable[[dict[str, Any]], Any]]
"""Of a table, by heading: a key of the row, or what makes the cell of the row."""
_PIPE_WIDTH = 1_000
"""Without a terminal Rich would wrap tables at 80 columns, and `grep` would find parts of lines."""

output_option: Callable[..., Any] = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Table, or JSON for scripts.",
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
    """Prints the output of one command."""

    def __init__(self, form: str = "table") -> None:
        self.as_json = form == "json"

    def data(self, document: Any) -> None:
        """Print a JSON document."""
        written = json.dumps(document, indent=2, ensure_ascii=False)
        # JSON leaves some control characters in its strings; \u escapes are the same characters.
        click.echo(CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", written))

    def printed_json(self, document: Any) -> bool:
        """Print a JSON document if JSON was asked for. False: nothing is printed."""
        if self.as_json:
            self.data(document)
        return self.as_json

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "nothing") -> None:
        """Print a table; without rows print `empty` on standard error."""
        if not rows:
            self.note(empty)
            return
        console().print(make_table(columns, rows))

    def listed(self, answer: Mapping[str, Any], name: str, columns: Columns, *, empty: str = "") -> None:
        """Print the list `name` of an answer as a table, or all of the answer as JSON."""
        if not self.printed_json(answer):
            cells = columns.values()
            rows = [[row[of] if isinstance(of, str) else of(row) for of in cells] for row in answer[name]]
            self.table(tuple(columns), rows, empty=empty or f"no {name}")

    def line(self, text: str) -> None:
        """Print a line of data."""
        click.echo(escape_controls(text))

    def note(self, text: str) -> None:
        """Print a message on standard error, which is never part of the data."""
        click.echo(escape_controls(text), err=True)


def console(*, stderr: bool = False) -> Console:
    """A console on the current standard output or error, which tests and pipes replace."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def make_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Build a table; names of states are coloured."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = ["" if value is None else escape_controls(str(value)) for value in row]
        # Text, not markup: a reason may contain brackets.
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in cells))
    return table


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Send log lines to standard error inside the block: structlog's default would mix them with data."""
    import structlog  # takes long; few commands need it

    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)
