"""`nimbus pool` and `nimbus share`: limits that running tasks share, and what teams get of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def pool() -> None:
    """Set limits that tasks of all pipelines share, such as connections to a database."""


@pool.command(name="set", epilog=examples("nimbus pool set warehouse 10"))
@click.argument("name")
@click.argument("size", type=click.IntRange(0, 1_000_000))
@remote
def set_(api: Api, out: Output, name: str, size: int) -> int:
    """Create a pool, or change its size. With 0, running tasks continue and no new task can use the pool."""
    return report_command(out, api.command("PUT", ("pools", name), {"size": size}))


@pool.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List pools: size, use by open attempts, and number of waiting ready tasks."""
    answer = api.get("/pools")
    if out.told(answer):
        return
    rows = [(row["name"], row["size"], row["used"], row["waiting"]) for row in answer["pools"]]
    out.table(("pool", "size", "used", "tasks waiting"), rows, empty="no pools")


@pool.command()
@click.argument("name")
@remote
def remove(api: Api, out: Output, name: str) -> int:
    """Remove a pool. Refused while tasks of live runs need it."""
    return report_command(out, api.command("DELETE", ("pools", name)))


@click.group(cls=LazyGroup)
def share() -> None:
    """Set what teams get of slots, running runs and pools. A team is the owner of pipelines."""


@share.command(name="set", epilog=examples("nimbus share set finance 2 --reason 'month end'"))
@click.argument("team")
@click.argument("weight", type=int)
@click.option("--reason", default="", help="Why; shown with the weight.")
@remote
def set_share(api: Api, out: Output, team: str, weight: int, reason: str) -> int:
    """Set the weight of a team: with 2 it gets twice as much as a team with 1, which all others have."""
    return report_command(out, api.command("PUT", ("shares", team), {"weight": weight, "reason": reason}))


@share.command(name="list")
@remote
def list_shares(api: Api, out: Output) -> None:
    """List teams with a weight, and teams that have or want something."""
    answer = api.get("/shares")
    if out.told(answer):
        return
    rows = [
        (
            row["team"] or "(no owner)",
            row["weight"],
            f"{row['slots']} of {answer['slots']}",
            row["share"],
            row["runs"],
            row["waiting"],
            " ".join(filter(None, (row["set_by"], row["reason"]))),
        )
        for row in answer["shares"]
    ]
    out.table(("team", "weight", "slots", "share", "runs", "tasks waiting", "set by"), rows, empty="no teams")
