"""Commands that change a run: pause, resume, approve, note, rerun, purge; and `nimbus task mark`."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command, report_started, selected
from nimbus.cli.output import Columns, Output, clock

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


@click.command(
    epilog=examples(
        "nimbus run rerun flights-20260301t060000z-1a2b3c --failed",
        "nimbus run rerun flights-20260301t060000z-1a2b3c --from load --release latest",
        'nimbus run rerun flights-20260301t060000z-1a2b3c --failed --mark check=succeeded --reason "by hand"',
    )
)
@click.argument("run_id")
@click.option("--failed", is_flag=True, help="Tasks that failed or did not run, and their dependents.")
@click.option("--all", "all_", is_flag=True, help="All tasks.")
@click.option("--from", "from_", multiple=True, metavar="TASK", help="This task and its dependents.")
@click.option("--only", multiple=True, metavar="TASK", help="Only this task. Repeat for more.")
@click.option("--upto", multiple=True, metavar="TASK", help="This task and all that it needs.")
@click.option(
    "--release",
    type=click.Choice(["same", "latest"]),
    default="same",
    show_default=True,
    help="The release of the earlier run, or the active one.",
)
@click.option(
    "--mark",
    "marks",
    multiple=True,
    metavar="TASK=succeeded|skipped",
    help="Record a task as succeeded or skipped, without running it. Needs --reason.",
)
@click.option("--reason", default="", help="Kept with the new run.")
@click.option("--new-run-id", metavar="ID", help="Your own id: the same id starts one run.")
@remote
def rerun(
    api: Api,
    out: Output,
    run_id: str,
    failed: bool,
    all_: bool,
    from_: tuple[str, ...],
    only: tuple[str, ...],
    upto: tuple[str, ...],
    release: str,
    marks: tuple[str, ...],
    reason: str,
    new_run_id: str | None,
) -> int:
    """Run a run again as a new run, with the same dates and parameters; prints the new run's id.

    Tasks that are not repeated count as succeeded, with their outputs and results of the earlier run. The
    rerun of a live run starts when that run has ended.
    """
    flags: dict[str, tuple[str, ...]] = {"failed": ("",) * failed, "all": ("",) * all_}
    chosen = selected({**flags, "from": from_, "only": only, "upto": upto})
    if chosen is None:
        raise click.UsageError("choose what to run: --failed, --all, --from, --only or --upto")
    path = ("runs", run_id)
    earlier = api.get(path)
    now = datetime.now(UTC)
    new = new_run_id or f"{earlier['pipeline']}-{now:%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}"
    body: dict[str, Any] = {
        "run_id": new,
        "scope": chosen[0],
        "tasks": [task for task in chosen[1] if task],
        "release": release,
        "marks": dict(_mark(text) for text in marks),
        "reason": reason,
    }
    waits = earlier.get("finished_at") is None
    answer = api.command("POST", (*path, "rerun"), body, decided=not waits)
    if waits and answer["status"] == "pending":
        if not out.printed_json(answer):
            out.line(new)
        out.note(f"it starts when run {run_id} has ended; `nimbus run show {new}` shows its state")
        return Exit.OK
    return report_started(out, new, answer)


def _mark(text: str) -> tuple[str, str]:
    task, equals, state = text.partition("=")
    if not equals or state not in ("succeeded", "skipped"):
        raise click.UsageError(f"--mark {text!r} is not of the form TASK=succeeded or TASK=skipped")
    return task, state


@click.command(
    epilog=examples(
        "nimbus run purge flights-20260301t060000z-1a2b3c --reason mistake",
        "nimbus run purge --pipeline flights --before 2026-01-01 --logs --outputs --dry-run",
        "nimbus run purge --pipeline flights --before 2026-01-01 --state failed --reason space",
    )
)
@click.argument("run_id", required=False)
@click.option("--pipeline", metavar="NAME", help="All its runs that ended before --before.")
@click.option("--before", metavar="DATE", help="A day in UTC, or a time with an offset.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["succeeded", "failed", "stopped"]),
    help="Only runs that ended in this state. Repeat for more.",
)
@click.option("--logs", is_flag=True, help="Logs of its attempts, and Spark's event logs.")
@click.option("--outputs", is_flag=True, help="Outputs of its tasks in worker.data.")
@click.option("--history", is_flag=True, help="Everything. This is the default.")
@click.option("--reason", default="", help="Kept with the run's id. Required without --dry-run.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and why the rest stays.")
@remote
def purge(
    api: Api,
    out: Output,
    run_id: str | None,
    pipeline: str | None,
    before: str | None,
    states: tuple[str, ...],
    reason: str,
    dry_run: bool,
    **parts: bool,
) -> int:
    """Delete an ended run, or parts of it; or many runs.

    The leader deletes within minutes. Outputs and history of a run stay while a later run reuses them, or
    while the run is in ZooKeeper. `nimbus run show` shows what was deleted of a run, when, and why.
    """
    if (run_id is None) is (pipeline is None) or (pipeline is None) is not (before is None):
        raise click.UsageError("name a run, or give --pipeline and --before")
    if not (reason or dry_run):
        raise click.UsageError("give --reason, which is kept with the run; or --dry-run")
    body: dict[str, Any] = {
        "run_id": run_id,
        "pipeline": pipeline,
        "before": before,
        "states": list(states),
        "parts": [part for part, chosen in parts.items() if chosen] or ["history"],
        "reason": reason,
    }
    body = {key: value for key, value in body.items() if value is not None}
    if dry_run:
        return _plan(out, api.post("/purge-plan", body))
    return report_command(out, api.command("POST", "/purges", body))


def _plan(out: Output, answer: dict[str, Any]) -> int:
    columns: Columns = {
        "run": "run_id",
        "state": "state",
        "ended": lambda row: clock(row["finished_at"]),
        "would go": lambda row: ", ".join(row["parts"]),
        "kept, since": "kept",
    }
    out.listed(answer, "runs", columns, empty="no run would lose anything")
    if not (out.as_json or answer["complete"]):
        out.note("there may be more: only 200 runs were examined.")
    return Exit.OK
