"""`nimbus pipeline intervals`: the calendar of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.command(epilog=examples("nimbus pipeline intervals sales --from 2026-01-01 --to 2026-03-31"))
@click.argument("name")
@click.option(
    "--from", "first", metavar="DATE", help="A day in the schedule's zone, or a time with an offset."
)
@click.option("--to", "last", metavar="DATE", help="The last date, included. Default: now.")
@remote
def intervals(api: Api, out: Output, name: str, first: str | None, last: str | None) -> None:
    """Show the state of each date of a pipeline: succeeded, failed, stopped, running, missing, or unknown.

    Without --from it shows the last 30 dates. Dates before the beginning of the index are unknown.
    """
    path = ("pipelines", name, "intervals")
    answer = page = api.get(path, **{"from": first, "to": last})
    while page["next_from"] is not None:
        page = api.get(path, **{"from": page["next_from"], "to": last})
        answer["intervals"] += page["intervals"]
    answer["next_from"] = None
    if out.told(answer):
        return
    rows = [
        (clock(row["end"]), clock(row["start"]), row["state"], row["run"], clock(row["ended_at"]))
        for row in answer["intervals"]
    ]
    columns = ("date", "data since", "state", "run", "ended")
    out.table(columns, rows, empty="no dates: the pipeline has no schedule, or it has not fired in this time")
