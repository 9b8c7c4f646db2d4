"""`nimbus command`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Columns, Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def command() -> None:
    """See the commands that were sent to the leader."""


@command.command(name="list", epilog=examples("nimbus command list --refused --pipeline sales"))
@click.option("--refused", is_flag=True, help="Refusals alone.")
@click.option("--pipeline", metavar="NAME", help="Only about this pipeline.")
@click.option("--kind", metavar="KIND", help="Only of this kind, such as start_run.")
@click.option("--by", metavar="NAME", help="Only commands of NAME, spelled as in the list.")
@click.option("--of", metavar="COMMAND", help="Only of this selection: a command for each of its targets.")
@click.option("--limit", type=click.IntRange(1, 25_000), default=20, show_default=True)
@remote
def list_(
    api: Api, out: Output, refused: bool, kind: str | None, by: str | None, limit: int, **about: str | None
) -> None:
    """List commands, newest first, as long as history is kept: sender, origin, reason and outcome."""
    only = "true" if refused else None
    about |= {"kind": kind, "submitted_by": by}
    answer = api.listed("/commands", "commands", limit, refused=only, **about)
    columns: Columns = {
        "command": "command_id",
        "status": "status",
        "kind": "kind",
        "pipeline": "pipeline",
        "run": "run_id",
        "by": "submitted_by",
        "from": "address",
        "at": lambda row: clock(row["at"]),
        "epoch": "epoch",
        "code": "code",
        "reason": "reason",
        "message": "message",
    }
    out.listed(answer, "commands", columns)
    if not (out.as_json or answer["history_complete"]):
        out.note("history did not answer: old commands may be missing from this list.")
