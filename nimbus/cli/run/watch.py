"""`nimbus run watch`, `logs` and `events`: follow a run and its logs, also while they grow."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output, between, console, make_table, on_worker

if TYPE_CHECKING:
    from rich.console import Group

    from nimbus.client import Client

_TIME_SPAN = re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|m|h|d)\b")
"""In words such as "last probed 3 s ago": that time passes is no change."""


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
    """Show a run until it is final; with JSON print only the final document. Returns OK or RUN_FAILED.

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
def _view(out: Output) -> Iterator[Callable[[dict[str, Any]], None]]:
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

    from nimbus.cli.run.rows import remarks

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
        done = f"{run['tasks_done']}/{run['tasks_total']} tasks ended"
        self._say("", f"run {run['state']}, {done}")

    def _say(self, what: str, words: str) -> None:
        words = " ".join(words.split())  # a reason may have several lines
        lasting = _TIME_SPAN.sub("", words)
        if self._seen.get(what) != lasting:
            self._seen[what] = lasting
            self._out.line(f"{datetime.now(UTC):%H:%M:%SZ}  {what + '  ' if what else ''}{words}")


def _task_words(task: dict[str, Any]) -> str:
    from nimbus.cli.run.rows import ended_application

    words = str(task["state"])
    why = (task["why"] or "").removeprefix(f"{words}: ")
    if task["attempts"]:
        last = task["attempts"][-1]
        words += f", attempt {last['number']}{on_worker(last)}"
    words += f": {why}" if why else ""
    return ", ".join(filter(None, (words, ended_application(task))))


@click.command(epilog=examples("nimbus run logs flights-20260301t060000z-1a2b3c ingest_flights -f"))
@click.argument("run_id")
@click.argument("task")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Default: the last one.")
@click.option(
    "-f", "--follow", is_flag=True, help="Keep printing while it grows, through retries, to the task's end."
)
@remote
def logs(api: Client, out: Output, run_id: str, task: str, attempt: int | None, follow: bool) -> int:
    """Print the log of a task, unchanged."""
    code, shown = Exit.OK, 0
    for piece in api.log(run_id, task, attempt=attempt, follow=follow):
        if follow and piece.attempt != shown:
            out.note(f"--- {task}, attempt {piece.attempt}")
            shown = piece.attempt
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()
        if follow and not piece.data and piece.state != "open":
            out.note(f"--- {task}, attempt {piece.attempt}: {piece.state}")
        code = Exit.UNREACHABLE if piece.unstored else Exit.OK  # of the last attempt
        if piece.unstored:
            out.note(f"the end of this log may be missing: {piece.unstored}")
    return code


_UNENDED = ".inprogress"
"""Spark's history server reads this suffix as: the application did not finish its log."""


@click.command(
    epilog=examples("nimbus run events flights-20260301t060000z-1a2b3c clean --to /var/spark-events")
)
@click.argument("run_id")
@click.argument("task")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Default: the last one.")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Folder for the file; it may be one that a history server reads.",
)
@remote
def events(api: Client, out: Output, run_id: str, task: str, attempt: int | None, folder: Path) -> None:
    """Store Spark's event log of a task in a file that Spark's history server reads; print its path."""
    offset = 0
    for piece in api.log(run_id, task, attempt=attempt, kind="events"):
        attempt = piece.attempt
        place = folder / f"{run_id}.{task}.{attempt}.zstd{_UNENDED}"
        if piece.data:
            with place.open("ab" if offset else "wb") as file:
                file.write(piece.data)
            offset = piece.end
    if not offset:
        raise CliError(
            f"attempt {attempt} of task {task} has no event log. It is stored when an attempt with "
            "`spark: {event_log: true}` has ended.",
            code="no_event_log",
            exit_code=Exit.NOT_FOUND,
        )
    if _is_whole(place):
        place = place.rename(folder / place.name.removesuffix(_UNENDED))
    if not out.printed_json({"file": str(place), "size_bytes": offset}):
        out.line(str(place))


def _is_whole(place: Path) -> bool:
    """Spark has ended the compressed stream."""
    import zstandard

    unfolding = zstandard.ZstdDecompressor().decompressobj()
    with place.open("rb") as file:
        while piece := file.read(64 << 10):
            try:
                unfolding.decompress(piece)
            except zstandard.ZstdError:  # bytes after the end of the stream, or no stream at all
                return False
    return bool(unfolding.eof)
