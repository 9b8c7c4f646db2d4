"""`nimbus run purge`: delete ended runs, or parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Columns, Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


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
