"""`nimbus hold`: starts that wait, for maintenance, an incident or a freeze."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def hold() -> None:
    """Hold starts of all pipelines, a team, a tag or a prefix of names. What runs goes on."""


@hold.command(
    epilog=examples("nimbus hold add freeze --team finance --reason 'month end' --until 2026-04-02T06:00Z")
)
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Hold all pipelines.")
@click.option("--team", help="Hold the pipelines of this owner.")
@click.option("--tag", help="Hold the pipelines that have this tag.")
@click.option("--prefix", help="Hold the pipelines whose names begin so.")
@click.option("--reason", required=True, help="Why; shown on every page.")
@click.option("--until", metavar="TIME", help="When it ends by itself, with offset or Z.")
@click.option(
    "--alert-after", "alert_after", metavar="DURATION", help="Without --until: when an alert is raised [24h]."
)
@remote
def add(
    api: Api,
    out: Output,
    name: str,
    *,
    everything: bool,
    reason: str,
    until: str | None,
    alert_after: str | None,
    **scopes: str | None,
) -> int:
    """Hold starts, or change the hold of this name. Runs that people ask for are queued until it ends."""
    from nimbus.config.values import parse_duration

    chosen = [(of, value) for of, value in scopes.items() if value] + [("all", "")] * everything
    if len(chosen) != 1:
        raise CliError("choose one of --all, --team, --tag, --prefix", code="usage", exit_code=Exit.USAGE)
    body: dict[str, object] = {"of": chosen[0][0], "name": chosen[0][1], "reason": reason, "until": until}
    if alert_after is not None:
        try:
            body["alert_after_s"] = int(parse_duration(alert_after).total_seconds())
        except ValueError as exc:
            raise CliError(f"--alert-after: {exc}", code="bad_duration", exit_code=Exit.USAGE) from exc
    return report_command(out, api.command("PUT", _path(name), body))


@hold.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List holds, with how many pipelines each covers."""
    answer = api.get("/holds")
    if out.as_json:
        out.data(answer)
        return
    rows = [(row["hold"], row["pipelines"], row["words"]) for row in answer["holds"]]
    out.table(("hold", "pipelines", "what"), rows, empty="no holds")


@hold.command()
@click.argument("name")
@remote
def end(api: Api, out: Output, name: str) -> int:
    """End a hold. What came due is dealt with as the catch-up of each pipeline says."""
    return report_command(out, api.command("DELETE", _path(name)))


def _path(name: str) -> str:
    return f"/holds/{quote(name, safe='')}"
