"""`nimbus run rerun`: run a run again as a new run."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples, remote, report_command, selected
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client.api import Api


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
    if not out.as_json:
        out.line(new)
    if waits and answer["status"] == "pending":
        if out.as_json:
            out.data(answer)
        out.note(f"it starts when run {run_id} has ended; `nimbus run show {new}` shows its state")
        return Exit.OK
    code = report_command(out, answer, quiet=not out.as_json)
    if code is Exit.OK:
        out.note(f"{answer['outcome']['message']}; follow it with `nimbus run watch {new}`")
    return code


def _mark(text: str) -> tuple[str, str]:
    task, equals, state = text.partition("=")
    if not equals or state not in ("succeeded", "skipped"):
        raise click.UsageError(f"--mark {text!r} is not of the form TASK=succeeded or TASK=skipped")
    return task, state
