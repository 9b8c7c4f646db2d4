"""`nimbus access`: roles on single pipelines, datasets, variables, prefixes of names, and teams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Columns, Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api

_ROLES = click.Choice(("status", "logs", "viewer", "operator", "author"))
_reason = click.option("--reason", required=True, help="Kept with the grant and with the command.")


@click.group(cls=LazyGroup)
def access() -> None:
    """Give principals and teams roles on things, beside the role of their token.

    WHO is the name of a token or a person, or a team. ON is pipeline:NAME, dataset:NAME, variable:NAME,
    team:OWNER (everything that it owns), or a prefix of names such as 'finance_*'.
    """


@access.command(
    epilog=examples(
        "nimbus access grant finance author team:finance --reason 'ticket 12'",
        "nimbus access grant ada logs pipeline:orders --reason 'on call'",
    )
)
@click.argument("who")
@click.argument("role", type=_ROLES)
@click.argument("on")
@_reason
@remote
def grant(api: Api, out: Output, who: str, role: str, on: str, reason: str) -> int:
    """Give WHO a ROLE on something; a former role on it is replaced."""
    body = {"who": who, "role": role, "on": on, "reason": reason}
    return report_command(out, api.command("POST", "/grants", body))


@access.command(epilog=examples("nimbus access revoke ada pipeline:orders --reason 'left'"))
@click.argument("who")
@click.argument("on")
@_reason
@remote
def revoke(api: Api, out: Output, who: str, on: str, reason: str) -> int:
    """Take the grant of WHO on something away, also for commands that wait."""
    return report_command(
        out, api.command("POST", "/grants/revoke", {"who": who, "on": on, "reason": reason})
    )


@access.command(epilog=examples("nimbus access show finance"))
@click.argument("who", required=False)
@remote
def show(api: Api, out: Output, who: str | None) -> None:
    """List grants: who gave them, when and why. All but admins see their own."""
    names = ("who", "role", "on", "by", "at", "reason")
    columns: Columns = {name: name for name in names} | {"at": lambda row: clock(row["at"])}
    out.listed(api.get("/grants", who=who), "grants", columns)


@access.command(epilog=examples("nimbus access can ada operator pipeline:orders"))
@click.argument("who")
@click.argument("role", type=_ROLES)
@click.argument("on")
@remote
def can(api: Api, out: Output, who: str, role: str, on: str) -> int:
    """Tell whether WHO has a ROLE on something, and by which rule. Exit code 7: it has not."""
    answer = api.get("/grants/may", who=who, role=role, on=on)
    if not out.told(answer):
        out.line(f"{'yes' if answer['allowed'] else 'no'}: {answer['why']}")
    return Exit.OK if answer["allowed"] else Exit.DENIED
