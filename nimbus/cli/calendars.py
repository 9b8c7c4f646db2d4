"""`nimbus calendar`: which days are worked, for schedules of all pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.group(cls=LazyGroup)
def calendar() -> None:
    """Set which days are worked, for schedules of all pipelines that name the calendar."""


@calendar.command(name="set", epilog=examples("nimbus calendar set de calendars/de.yaml --reason 2027"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--reason", default="", help="Why; shown with the calendar.")
@remote
def set_(api: Api, out: Output, name: str, file: Path, reason: str) -> int:
    """Create a calendar, or change it. Fire times that are not decided yet follow it."""
    from nimbus.definition.calendar_file import MOST_BYTES, parse_calendar

    with file.open("rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    parse_calendar(text, str(file))  # its faults have the file's name
    body = {"text": text.decode("utf-8-sig"), "reason": reason}
    return report_command(out, api.command("PUT", _path(name), body))


@calendar.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List calendars of the cluster, and the pipelines that follow them."""
    answer = api.get("/calendars")
    if out.as_json:
        out.data(answer)
        return
    rows = [
        (
            row["name"],
            len(row["days"]["exceptions"]),
            max(row["days"]["exceptions"], default=""),
            ", ".join(row["followed_by"]),
            " ".join(filter(None, (clock(row["set_at"]), row["set_by"], row["reason"]))),
        )
        for row in answer["calendars"]
    ]
    out.table(("calendar", "dates", "last date", "followed by", "set"), rows, empty="no calendars")


@calendar.command()
@click.argument("name")
@remote
def show(api: Api, out: Output, name: str) -> None:
    """Show the days of a calendar, in the form of its file."""
    found = next((one for one in api.get("/calendars")["calendars"] if one["name"] == name), None)
    if found is None:
        raise CliError(
            f"there is no calendar {name}: see `nimbus calendar list`.",
            code="unknown_calendar",
            exit_code=Exit.NOT_FOUND,
        )
    if out.as_json:
        out.data(found)
        return
    out.line(_as_file(found["days"]))


@calendar.command()
@click.argument("name")
@remote
def remove(api: Api, out: Output, name: str) -> int:
    """Remove a calendar. Refused while a pipeline follows it."""
    return report_command(out, api.command("DELETE", _path(name)))


def _as_file(days: dict[str, Any]) -> str:
    from datetime import date

    from nimbus.definition.calendar_file import WEEKDAYS

    off = [one for one in days["exceptions"] if date.fromisoformat(one).weekday() in days["weekdays"]]
    on = [one for one in days["exceptions"] if one not in off]
    worked = [WEEKDAYS[number] for number in days["weekdays"]]
    lists = (("weekdays", worked), ("holidays", off), ("workdays", on))
    return "\n".join(f"{key}: [{', '.join(values)}]" for key, values in lists)


def _path(name: str) -> str:
    return f"/calendars/{quote(name, safe='')}"
