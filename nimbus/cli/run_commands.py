"""Commands for a live run and its tasks: `nimbus run pause`, `resume`, `approve`, and `nimbus task mark`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.command(epilog=examples("nimbus run pause flights-20260301t060000z-1a2b3c"))
@click.argument("run_id")
@remote
def pause(api: Api, out: Output, run_id: str) -> int:
    """Start no new tasks of a run until `nimbus run resume`. Safe to repeat.

    Running tasks continue, and so does the run's deadline. A queued run keeps its place, and does not start.
    A paused run that has started counts for `concurrency.limit`.
    """
    return report_command(out, api.command("POST", ("runs", run_id, "pause")))


@click.command()
@click.argument("run_id")
@remote
def resume(api: Api, out: Output, run_id: str) -> int:
    """Resume a paused run. Safe to repeat."""
    return report_command(out, api.command("POST", ("runs", run_id, "resume")))


@click.command(
    epilog=examples(
        'nimbus run approve sales-20260301 release --reason "figures checked"',
        'nimbus run approve sales-20260301 release --reject --reason "rows are missing"',
    )
)
@click.argument("run_id")
@click.argument("task")
@click.option("--reject", is_flag=True, help="Reject instead: the task fails.")
@click.option("--reason", required=True, help="Shown with the task.")
@remote
def approve(api: Api, out: Output, run_id: str, task: str, reject: bool, reason: str) -> int:
    """Approve a waiting task of type approval. Records your local user name. Safe to repeat."""
    body = {"approved": not reject, "reason": reason}
    path = ("runs", run_id, "tasks", task, "approval")
    return report_command(out, api.command("POST", path, body))


@click.command(epilog=examples('nimbus run note sums-20260301 "known, ticket 12" --task load'))
@click.argument("run_id")
@click.argument("text")
@click.option("--task", metavar="TASK", help="The task that it is about.")
@remote
def note(api: Api, out: Output, run_id: str, text: str, task: str | None) -> int:
    """Note something about an ended run, with your name and the time. Replaces its note; '' removes it."""
    return report_command(out, api.command("PUT", ("runs", run_id, "note"), {"text": text, "task": task}))


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
    path = ("runs", run_id, "tasks", name, "mark")
    return report_command(out, api.command("POST", path, {"state": state, "reason": reason}))
