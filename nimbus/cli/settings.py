"""`nimbus pool`, `share`, `hold`, `calendar` and `var`: settings of the whole cluster."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import duration, examples, remote, report_command
from nimbus.cli.output import Columns, Output, clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def pool() -> None:
    """Set limits that tasks of all pipelines share, such as connections to a database."""


@pool.command(name="set", epilog=examples("nimbus pool set warehouse 10"))
@click.argument("name")
@click.argument("size", type=click.IntRange(0, 1_000_000))
@remote
def set_pool(api: Api, out: Output, name: str, size: int) -> int:
    """Create a pool, or change its size. With 0, running tasks continue and no new task can use the pool."""
    return report_command(out, api.command("PUT", ("pools", name), {"size": size}))


@pool.command(name="list")
@remote
def list_pools(api: Api, out: Output) -> None:
    """List pools: size, use by open attempts, and number of waiting ready tasks."""
    columns: Columns = {"pool": "name", "size": "size", "used": "used", "tasks waiting": "waiting"}
    out.listed(api.get("/pools"), "pools", columns)


@pool.command(name="remove")
@click.argument("name")
@remote
def remove_pool(api: Api, out: Output, name: str) -> int:
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
    columns: Columns = {
        "team": lambda row: row["team"] or "(no owner)",
        "weight": "weight",
        "slots": lambda row: f"{row['slots']} of {answer['slots']}",
        "share": "share",
        "runs": "runs",
        "tasks waiting": "waiting",
        "set by": lambda row: " ".join(filter(None, (row["set_by"], row["reason"]))),
    }
    out.listed(answer, "shares", columns, empty="no teams")


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
@click.option(
    "--until",
    metavar="TIME",
    help="When it ends by itself: a time with offset or Z, or a duration.",
)
@click.option(
    "--alert-after",
    callback=duration,
    metavar="DURATION",
    help="Without --until: when it raises an alert [24h].",
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
    alert_after: timedelta | None,
    **scopes: str | None,
) -> int:
    """Hold starts, or change the hold of this name. Runs that people ask for are queued until it ends."""
    from nimbus.config.values import parse_duration

    chosen = [(of, value) for of, value in scopes.items() if value] + [("all", "")] * everything
    if len(chosen) != 1:
        raise CliError("choose one of --all, --team, --tag, --prefix", code="usage", exit_code=Exit.USAGE)
    if until is not None:
        with suppress(ValueError):  # else it is a time
            until = (datetime.now(UTC) + parse_duration(until)).isoformat()
    body: dict[str, object] = {"of": chosen[0][0], "name": chosen[0][1], "reason": reason, "until": until}
    if alert_after is not None:
        body["alert_after_s"] = int(alert_after.total_seconds())
    return report_command(out, api.command("PUT", ("holds", name), body))


@hold.command(name="list")
@remote
def list_holds(api: Api, out: Output) -> None:
    """List holds, with how many pipelines each covers."""
    columns: Columns = {"hold": "hold", "pipelines": "pipelines", "what": "words"}
    out.listed(api.get("/holds"), "holds", columns)


@hold.command()
@click.argument("name")
@remote
def end(api: Api, out: Output, name: str) -> int:
    """End a hold. What came due is dealt with as the catch-up of each pipeline says."""
    return report_command(out, api.command("DELETE", ("holds", name)))


@click.group(cls=LazyGroup)
def calendar() -> None:
    """Set which days are worked, for schedules of all pipelines that name the calendar."""


@calendar.command(name="set", epilog=examples("nimbus calendar set de calendars/de.yaml --reason 2027"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--reason", default="", help="Why; shown with the calendar.")
@remote
def set_calendar(api: Api, out: Output, name: str, file: Path, reason: str) -> int:
    """Create a calendar, or change it. Fire times that are not decided yet follow it."""
    from nimbus.definition.calendar_file import MAX_BYTES, parse_calendar

    with file.open("rb") as opened:
        text = opened.read(MAX_BYTES + 1)
    parse_calendar(text, str(file))  # its faults have the file's name
    body = {"text": text.decode("utf-8-sig"), "reason": reason}
    return report_command(out, api.command("PUT", ("calendars", name), body))


@calendar.command(name="list")
@remote
def list_calendars(api: Api, out: Output) -> None:
    """List calendars of the cluster, and the pipelines that follow them."""
    columns: Columns = {
        "calendar": "name",
        "dates": lambda row: len(row["days"]["exceptions"]),
        "last date": lambda row: max(row["days"]["exceptions"], default=""),
        "followed by": lambda row: ", ".join(row["followed_by"]),
        "set": lambda row: " ".join(filter(None, (clock(row["set_at"]), row["set_by"], row["reason"]))),
    }
    out.listed(api.get("/calendars"), "calendars", columns)


@calendar.command()
@click.argument("name")
@remote
def show(api: Api, out: Output, name: str) -> None:
    """Show the days of a calendar, in the form of its file."""
    row = next((row for row in api.get("/calendars")["calendars"] if row["name"] == name), None)
    if row is None:
        message = f"there is no calendar {name}: see `nimbus calendar list`."
        raise CliError(message, code="unknown_calendar", exit_code=Exit.NOT_FOUND)
    if not out.printed_json(row):
        out.line(_as_file(row["days"]))


@calendar.command(name="remove")
@click.argument("name")
@remote
def remove_calendar(api: Api, out: Output, name: str) -> int:
    """Remove a calendar. Refused while a pipeline follows it."""
    return report_command(out, api.command("DELETE", ("calendars", name)))


def _as_file(days: dict[str, Any]) -> str:
    from datetime import date

    from nimbus.definition.calendar_file import WEEKDAYS

    off = [day for day in days["exceptions"] if date.fromisoformat(day).weekday() in days["weekdays"]]
    on = [day for day in days["exceptions"] if day not in off]
    worked = [WEEKDAYS[number] for number in days["weekdays"]]
    lists = (("weekdays", worked), ("holidays", off), ("workdays", on))
    return "\n".join(f"{key}: [{', '.join(values)}]" for key, values in lists)


@click.group(cls=LazyGroup)
def var() -> None:
    """Variables of the cluster, which templates read as vars.NAME. Not for secrets: anybody can read them."""


@var.command(name="set", epilog=examples("nimbus var set warehouse jdbc:postgresql://db/dwh"))
@click.argument("name")
@click.argument("value")
@remote
def set_variable(api: Api, out: Output, name: str, value: str) -> int:
    """Set a variable. Existing runs keep their value."""
    return report_command(out, api.command("PUT", ("variables", name), {"value": value}))


@var.command(name="list")
@remote
def list_variables(api: Api, out: Output) -> None:
    """List variables with their values."""
    answer = api.get("/variables")
    if not out.printed_json(answer):
        out.table(("variable", "value"), list(answer["variables"].items()), empty="no variables")


@var.command(name="remove")
@click.argument("name")
@remote
def remove_variable(api: Api, out: Output, name: str) -> int:
    """Remove a variable. Existing runs keep its value."""
    return report_command(out, api.command("DELETE", ("variables", name)))
