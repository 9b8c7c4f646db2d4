"""`nimbus alert`: alerts that were sent or wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Columns, Output, clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def alert() -> None:
    """List alerts about failures and other events; test their targets."""


@alert.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List alerts: those that wait, sent ones of the last hour, those not delivered in the last 7 days."""
    columns: Columns = {
        "raised": lambda row: clock(row["raised_at"]),
        "event": "event",
        "about": lambda row: row["run"] or row["pipeline"] or "hold",
        "target": "target",
        "state": _state,
        "last error": "error",
    }
    out.listed(api.get("/alerts"), "alerts", columns)


@alert.command(epilog=examples("nimbus alert test oncall"))
@click.argument("target")
@remote
def test(api: Api, out: Output, target: str) -> int:
    """Send a message to TARGET from the scheduler that answers.

    Exit code 1 if the target does not accept it.
    """
    answer = api.post(("alerts", "targets", target, "test"), {})
    if not out.printed_json(answer):
        out.line(
            f"{target} accepted it" if answer["sent"] else f"{target} did not accept it: {answer['error']}"
        )
    return Exit.OK if answer["sent"] else Exit.RUN_FAILED


def _state(row: dict[str, object]) -> str:
    marks = [f"try {row['tries']}"] if row["state"] in ("waiting", "sending") and row["tries"] else []
    marks += ["may repeat"] if row["may_repeat"] else []
    marks += [f"for {row['more']} more"] if row["more"] else []
    said = str(row["state"]).replace("_", " ")
    return f"{said} ({', '.join(marks)})" if marks else said
