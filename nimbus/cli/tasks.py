"""`nimbus task`: tasks of live runs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.cli.client import Api


@click.group(cls=LazyGroup)
def task() -> None:
    """Mark tasks of live runs."""


@task.command(
    epilog=examples(
        'nimbus task mark flights-20260301t060000z-1a2b3c check succeeded --reason "checked by hand"'
    )
)
@click.argument("run_id")
@click.argument("name", metavar="TASK")
@click.argument("state", type=click.Choice(["succeeded", "skipped"]))
@click.option("--reason", required=True, help="Shown with the task, with your name and the time.")
@remote
def mark(api: Api, out: Output, run_id: str, name: str, state: str, reason: str) -> int:
    """Record a waiting task as succeeded or skipped, without running it. Safe to repeat.

    The run continues at once. To mark a failed task, use a rerun: `nimbus run rerun --mark`.
    """
    path = f"/runs/{quote(run_id, safe='')}/tasks/{quote(name, safe='')}/mark"
    return report_command(out, api.command("POST", path, {"state": state, "reason": reason}))
