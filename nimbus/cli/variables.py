"""`nimbus var`: variables of the cluster, which templates read as `vars.NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def var() -> None:
    """Variables of the cluster, which templates read as vars.NAME. Not for secrets: anybody can read them."""


@var.command(name="set", epilog=examples("nimbus var set warehouse jdbc:postgresql://db/dwh"))
@click.argument("name")
@click.argument("value")
@remote
def set_(api: Api, out: Output, name: str, value: str) -> int:
    """Set a variable. Existing runs keep their value."""
    return report_command(out, api.command("PUT", ("variables", name), {"value": value}))


@var.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List variables with their values."""
    answer = api.get("/variables")
    if out.told(answer):
        return
    out.table(("variable", "value"), list(answer["variables"].items()), empty="no variables")


@var.command()
@click.argument("name")
@remote
def remove(api: Api, out: Output, name: str) -> int:
    """Remove a variable. Existing runs keep its value."""
    return report_command(out, api.command("DELETE", ("variables", name)))
