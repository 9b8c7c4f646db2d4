"""`nimbus run logs`: the log of a task, from any scheduler, while it grows and afterwards."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output

if TYPE_CHECKING:
    import httpx

    from nimbus.cli.client import Api

_POLL_S = 0.5
_LATE_S = 2.0
"""The last bytes of a log may reach storage a moment after the attempt's END."""


@click.command(epilog=examples("nimbus run logs flights-20260301t060000z-1a2b3c ingest_flights -f"))
@click.argument("run_id")
@click.argument("task")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Default: the last one.")
@click.option(
    "-f", "--follow", is_flag=True, help="Keep printing while it grows, through retries, to the task's end."
)
@remote
def logs(api: Api, out: Output, run_id: str, task: str, attempt: int | None, follow: bool) -> int:
    """Print the log of a task, unchanged."""
    path = f"/runs/{quote(run_id, safe='')}/tasks/{quote(task, safe='')}/log"
    if not follow:
        _, _, unstored = _print_to_end(api, path, attempt, 0)
        return _note_unstored(out, unstored)
    number, noted = attempt, int(Exit.OK)
    while True:
        first = _wait_for_attempt(api, path, run_id, task, number)
        if first is None:
            return noted
        number = int(first.headers["X-Attempt"])
        out.note(f"--- {task}, attempt {number}")
        state, unstored = _follow_attempt(api, path, number)
        out.note(f"--- {task}, attempt {number}: {state}")
        noted = _note_unstored(out, unstored)
        if attempt is not None:
            return noted
        number += 1


def _note_unstored(out: Output, unstored: str) -> int:
    """Say why the end of a log may be missing; return the exit code."""
    if not unstored:
        return Exit.OK
    out.note(f"the end of this log may be missing: {unstored}")
    return Exit.UNREACHABLE


def _print_to_end(api: Api, path: str, attempt: int | None, offset: int) -> tuple[int, str, str]:
    """Print the log from `offset` on; return the new offset, the attempt's state, and `X-Log-Unstored`."""
    while True:
        answer = api.fetch(path, attempt=attempt, offset=offset)
        if not answer.content:
            return offset, answer.headers["X-Attempt-State"], answer.headers.get("X-Log-Unstored", "")
        sys.stdout.buffer.write(answer.content)
        sys.stdout.buffer.flush()
        offset = int(answer.headers["X-Log-End"])
        attempt = int(answer.headers["X-Attempt"])  # a retry between two pieces must not mix two logs


def _follow_attempt(api: Api, path: str, number: int) -> tuple[str, str]:
    offset, late_since = 0, None
    while True:
        before = offset
        offset, state, unstored = _print_to_end(api, path, number, offset)
        if state != "open":
            now = time.monotonic()
            late_since = now if late_since is None or offset != before else late_since
            if now - late_since >= _LATE_S:
                return state, unstored
        time.sleep(_POLL_S)


def _wait_for_attempt(
    api: Api, path: str, run_id: str, task: str, number: int | None
) -> httpx.Response | None:
    """Wait until the attempt exists; None if it never will, because the task has ended."""
    from nimbus.cli.client import ProblemError

    while True:
        try:
            return api.fetch(path, attempt=number, limit=1)
        except ProblemError as exc:
            if exc.code not in ("no_attempt", "unknown_attempt", "run_pending"):
                raise
            found = api.get(f"/runs/{quote(run_id, safe='')}")
            states = {row["name"]: row["state"] for row in found["tasks"]}
            if exc.code != "run_pending" and states[task] not in ("waiting", "running"):
                if number is None or number == 1:
                    raise
                return None
        time.sleep(_POLL_S)
