"""`nimbus run replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.command(epilog=examples("nimbus run replay sales-20260301t060000z --at 2026-03-01T06:10:00Z"))
@click.argument("run_id")
@click.option("--at", required=True, metavar="TIME", help="With an offset, such as 2026-03-01T06:10:00Z.")
@remote
def replay(api: Api, out: Output, run_id: str, at: str) -> None:
    """Show a run as it was at a time in its past, rebuilt from its record.

    Attempts that the record only counts, pauses that are over, and child runs are not shown.
    """
    answer = api.get(("runs", run_id, "replay"), at=at)
    if out.told(answer):
        return
    out.line(f"run    {answer['run_id']} at {clock(answer['at'])}")
    out.line(f"state  {answer['state']}" + (f" ({answer['reason']})" if answer["reason"] else ""))
    out.line("")
    rows = [
        (
            task["name"],
            task["state"],
            last.get("number", ""),
            last.get("worker", ""),
            last.get("outcome") or "",
        )
        for task in answer["tasks"]
        for last in [task["attempts"][-1] if task["attempts"] else {}]
    ]
    out.table(("task", "state", "attempt", "worker", "outcome"), rows)
    out.line("")
    events = [
        (clock(event["at"]), event["kind"], event["task"] or "", event["attempt"] or "", event["detail"])
        for event in answer["events"]
    ]
    out.table(("at", "event", "task", "attempt", "detail"), events)
