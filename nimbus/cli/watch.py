"""`nimbus run watch`: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output, console, make_table
from nimbus.cli.words import between, on_worker

if TYPE_CHECKING:
    from rich.console import Group

    from nimbus.client import Client

_TIME_SPAN = re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|m|h|d)\b")
"""In words such as "last looked 3 s ago": that time passes is no change."""


class View(Protocol):
    """Shows the current state of a run."""

    def __call__(self, run: dict[str, Any]) -> None:
        """Show the run."""
        ...


@click.command(epilog=examples("nimbus run watch flights-20260301t060000z-1a2b3c --watch-timeout 600"))
@click.argument("run_id")
@click.option(
    "--watch-timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop watching: exit code 5."
)
@remote
def watch(api: Client, out: Output, run_id: str, watch_timeout: float | None) -> int:
    """Follow a run to its end. The exit code is its result: 0 succeeded, 1 failed or stopped."""
    return follow(api, out, run_id, timeout_s=watch_timeout)


def follow(api: Client, out: Output, run_id: str, *, timeout_s: float | None) -> Exit:
    """Show a run until it is final.

    Args:
        api: The client.
        out: With JSON only the final document is printed.
        run_id: The run.
        timeout_s: Longest time to watch.

    Returns:
        OK or RUN_FAILED.

    Raises:
        ConflictError: a leader refused to start it.
        WaitTimeoutError: it goes on.
    """
    told = False
    with _view(out) as show:
        for run in api.watch(run_id, timeout_s=timeout_s):
            if run.state != "pending":
                show(dict(run.document))
            elif not told:
                out.note(f"run {run_id} is queued; it starts when a scheduler leads")
                told = True
    document = dict(run.document)
    if out.as_json:
        out.data(document)
    took = between(document["created_at"], document["finished_at"], datetime.now(UTC))
    out.note(f"run {run_id} {run.state} after {took}" + (f": {run.reason}" if run.reason else ""))
    return Exit.OK if run.state == "succeeded" else Exit.RUN_FAILED


@contextmanager
def _view(out: Output) -> Iterator[View]:
    if out.as_json:
        yield lambda _run: None
    elif sys.stdout.isatty():
        from rich.live import Live

        with Live(console=console(), refresh_per_second=4, transient=False) as live:
            yield lambda run: live.update(_picture(run))
    else:
        yield Changes(out)


def _picture(run: dict[str, Any]) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from nimbus.cli.task_rows import remarks

    now = datetime.now(UTC)
    rows = []
    for task in run["tasks"]:
        last = task["attempts"][-1] if task["attempts"] else None
        took = between(last["started_at"] or last["opened_at"], last["ended_at"], now) if last else ""
        number = last["number"] if last else ""
        rows.append((task["name"], task["state"], number, took, remarks(task)))
    head = f"{run['id']}  {run['state']}  {between(run['created_at'], run['finished_at'], now)}"
    done = ProgressBar(total=max(run["tasks_total"], 1), completed=run["tasks_done"], width=48)
    return Group(Text(head), done, make_table(("task", "state", "attempt", "took", ""), rows))


class Changes:
    """Prints a line for each change: for logs of CI jobs, and for `grep`."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._seen: dict[str, str] = {}

    def __call__(self, run: dict[str, Any]) -> None:
        """Print the changes since the last call."""
        for task in run["tasks"]:
            self._say(task["name"], _task_words(task))
        done = f"{run['tasks_done']}/{run['tasks_total']} tasks"
        self._say("", f"run {run['state']}, {done}")

    def _say(self, what: str, words: str) -> None:
        words = " ".join(words.split())  # a reason may have several lines
        lasting = _TIME_SPAN.sub("", words)
        if self._seen.get(what) != lasting:
            self._seen[what] = lasting
            self._out.line(f"{datetime.now(UTC):%H:%M:%SZ}  {what + '  ' if what else ''}{words}")


def _task_words(task: dict[str, Any]) -> str:
    from nimbus.cli.task_rows import ended_application

    words = str(task["state"])
    why = (task["why"] or "").removeprefix(f"{words}: ")
    if task["attempts"]:
        last = task["attempts"][-1]
        words += f", attempt {last['number']}{on_worker(last)}"
    words += f": {why}" if why else ""
    return ", ".join(filter(None, (words, ended_application(task))))
