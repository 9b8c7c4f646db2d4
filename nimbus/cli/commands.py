"""`nimbus command`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(
    cls=LazyGroup,
    lazy={"list": Lazy("nimbus.cli.commands:list_", "List commands and their outcomes.")},
)
def command() -> None:
    """See the commands that were sent to the leader."""


@click.command(name="list", epilog=examples("nimbus command list --refused --pipeline sales"))
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
    if out.told(answer):
        return
    columns = (
        "command",
        "status",
        "kind",
        "pipeline",
        "run",
        "by",
        "from",
        "at",
        "epoch",
        "code",
        "reason",
        "message",
    )
    rows = [
        (
            row["command_id"],
            row["status"],
            row["kind"],
            row["pipeline"] or "",
            row["run_id"] or "",
            row["submitted_by"],
            row["address"],
            clock(row["at"]),
            "" if row["epoch"] is None else row["epoch"],
            row["code"],
            row["reason"],
            row["message"],
        )
        for row in answer["commands"]
    ]
    out.table(columns, rows, empty="no commands")
    if not answer["history_complete"]:
        out.note("history did not answer: old commands may be missing from this list.")
