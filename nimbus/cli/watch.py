"""`nimbus run watch`: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output, console, make_table
from nimbus.cli.words import between, on_worker

if TYPE_CHECKING:
    from rich.console import Group

    from nimbus.cli.client import Api

_POLL_S = 0.5
_OUTAGE_PATIENCE_S = 300.0
"""A run survives outages of minutes, so watching must, too."""


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
def watch(api: Api, out: Output, run_id: str, watch_timeout: float | None) -> int:
    """Follow a run to its end. The exit code is its result: 0 succeeded, 1 failed or stopped."""
    return follow(api, out, run_id, timeout_s=watch_timeout)


def follow(api: Api, out: Output, run_id: str, *, timeout_s: float | None) -> Exit:
    """Show a run until it is final.

    Args:
        api: The client.
        out: With JSON only the final document is printed.
        run_id: The run.
        timeout_s: Longest time to watch.

    Returns:
        OK, RUN_FAILED or WATCH_TIMEOUT.

    Raises:
        ProblemError: a leader refused to start it.
    """
    api.patience_s = _OUTAGE_PATIENCE_S if timeout_s is None else min(_OUTAGE_PATIENCE_S, max(timeout_s, 1.0))
    until = None if timeout_s is None else time.monotonic() + timeout_s
    pending = False
    with _view(out) as show:
        while True:
            run = api.get(f"/runs/{quote(run_id, safe='')}")
            _check_started(out, run, told=pending)
            pending = run["state"] == "pending"
            if not pending:
                show(run)
            if run["state"] in ("succeeded", "failed", "stopped"):
                break
            if until is not None and time.monotonic() >= until:
                out.note(f"run {run_id} is not finished after {timeout_s:g} s; it continues.")
                return Exit.WATCH_TIMEOUT
            time.sleep(_POLL_S)
    if out.as_json:
        out.data(run)
    took = between(run["created_at"], run["finished_at"], datetime.now(UTC))
    out.note(f"run {run_id} {run['state']} after {took}" + (f": {run['reason']}" if run["reason"] else ""))
    return Exit.OK if run["state"] == "succeeded" else Exit.RUN_FAILED


def _check_started(out: Output, run: dict[str, Any], *, told: bool) -> None:
    """Raise if the run was refused; report once that it is pending."""
    from nimbus.cli.client import ProblemError

    if run["state"] == "refused":
        raise ProblemError(409, run["command"]["outcome"]["code"], run["reason"])
    if run["state"] == "pending" and not told:
        out.note(f"run {run['id']} is queued; it starts when a scheduler leads")


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
