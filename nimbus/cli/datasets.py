"""`nimbus dataset`: what tasks have published."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote, report_command
from nimbus.cli.output import Columns, Output, clock
from nimbus.cli.run.outputs import copy_output
from nimbus.domain.wording import counted

if TYPE_CHECKING:
    from nimbus.client import Client
    from nimbus.client.api import Api

MAX_LISTED = 1_000_000
_VERSION = ("partition", "number", "run", "published by", "at", "result")


@click.group(cls=LazyGroup)
def dataset() -> None:
    """See datasets: named outputs of tasks, which outlive the runs that published them."""


@dataset.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List datasets: who publishes each, how often it was published, and when last."""
    columns: Columns = {
        "dataset": "name",
        "partition": "partition",
        "published by": lambda row: ", ".join(row["publishers"]) or "nobody",
        "versions": "published",
        "last": lambda row: clock(row["newest"] and row["newest"]["at"]),
    }
    nothing = "no datasets: a task publishes one with `publishes` in its pipeline"
    out.listed(api.listed("/datasets", "datasets", MAX_LISTED), "datasets", columns, empty=nothing)


@dataset.command(
    epilog=examples("nimbus dataset show orders", "nimbus dataset show orders --partition eu --limit 10")
)
@click.argument("name")
@click.option("--partition", metavar="PARTITION", help="Only versions of this key or interval.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Versions.")
@remote
def show(api: Api, out: Output, name: str, partition: str | None, limit: int) -> None:
    """Show who publishes a dataset, which times are published, and its versions, the newest first."""
    path = ("datasets", name)
    answer = api.get(path)
    listed = api.get((*path, "versions"), partition=partition, limit=limit, results=True)
    answer |= {"versions": listed["versions"], "complete": listed["complete"]}
    if out.printed_json(answer):
        return
    publishers = ", ".join(answer["publishers"]) or "nobody: no active release publishes it"
    by = f", by {answer['partition']}" if answer["partition"] in ("interval", "key") else ""
    out.line(f"{name}{by}: published {counted(answer['published'], 'time')}, by {publishers}")
    if answer["readers"]:
        out.line(f"  read by {', '.join(answer['readers'])}")
    if (may_read := answer["may_read"]) is not None:
        out.line(f"  only {', '.join(['its owner', *may_read])} and admins may read it")
    if late := answer["late_from"]:
        is_late = datetime.fromisoformat(late) <= datetime.now(UTC)
        out.line(
            f"  late since {clock(late)}" if is_late else f"  late from {clock(late)} without newer data"
        )
    for span in answer["spans"]:
        out.line(f"  published from {clock(span['start'])} to {clock(span['end'])}")
    out.table(_VERSION, list(map(_row, answer["versions"])), empty="no versions")
    if table := next(filter(None, (version["table"] for version in answer["versions"])), None):
        out.line("")
        more = f"and {table['more']} more"
        rows = [*table["columns"].items(), *([(more, "")] if table["more"] else [])]
        out.table(("column of the newest table", "type"), rows)
    if not answer["complete"]:
        out.line(f"only the newest {limit}: name a --partition, or raise --limit")


@dataset.command(
    epilog=examples("nimbus dataset get model ./model", "nimbus dataset get regions ./eu --partition eu")
)
@click.argument("name")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--partition", metavar="PARTITION", help="Key or interval; needed if the dataset is divided.")
@remote
def get(api: Api, out: Output, name: str, folder: Path, partition: str | None) -> None:
    """Copy the newest version of a dataset, or of a partition, into DIR, which must not exist."""
    place = ("datasets", name)
    if partition is None and api.get(place)["partition"] not in (None, "whole"):
        raise CliError(
            f"dataset {name} has partitions: say which one, with --partition; `nimbus dataset show {name}` "
            "lists them.",
            code="no_partition",
            exit_code=Exit.USAGE,
        )
    versions = api.get((*place, "versions"), partition=partition or "", limit=1)["versions"]
    if not versions:
        what = f"dataset {name}" if partition is None else f"partition {partition} of dataset {name}"
        raise CliError(f"{what} is not published.", code="not_published", exit_code=Exit.NOT_FOUND)
    if outside := versions[0]["outside"]:
        raise CliError(
            f"dataset {name} has data from outside, which Nimbus does not copy: {_verified(outside)}.",
            code="from_outside",
            exit_code=Exit.USAGE,
        )
    run, task, _ = versions[0]["source"].rsplit(".", 2)
    out.note(f"published at {clock(versions[0]['at'])} by run {versions[0]['run']}")
    copy_output(api, out, run, task, folder)


@dataset.command(
    epilog=examples(
        "nimbus dataset publish landing --uri s3://in/2026-01-01.csv --interval 2026-01-01Z 2026-01-02Z",
        "nimbus dataset publish rates --uri file:///data/rates.csv --digest sha256:...",
    )
)
@click.argument("name")
@click.option("--uri", required=True, metavar="URI", help="Where readers find the data.")
@click.option("--interval", nargs=2, metavar="FROM TO", help="Of a dataset by interval, with offsets.")
@click.option("--key", metavar="KEY", help="Of a dataset by key.")
@click.option("--digest", metavar="sha256:HEX", help="Of the one file at URI. Without it: unverified.")
@click.option("--value", metavar="JSON", help="What readers get beside the URI, 512 bytes at most.")
@click.option("--idempotency-key", "repeat", metavar="TEXT", help="The same key within a day: done once.")
@remote
def publish(
    api: Client,
    out: Output,
    name: str,
    uri: str,
    interval: tuple[str, str] | None,
    key: str | None,
    digest: str | None,
    value: str | None,
    repeat: str | None,
) -> int:
    """Publish data that no task made. Their pipeline must say that NAME comes from outside."""
    try:
        said = None if value is None else json.loads(value)
    except ValueError as exc:
        raise click.BadParameter(f"is no JSON: {exc}", param_hint="--value") from exc
    answer = api.publish(name, uri, interval=interval, partition=key, digest=digest, value=said, key=repeat)
    return report_command(out, answer)


@dataset.command(epilog=examples("nimbus dataset withdraw regions --partition eu --reason 'half a file'"))
@click.argument("name")
@click.option("--partition", default="", metavar="PARTITION", help="Key or interval, as `show` names it.")
@click.option("--number", type=int, metavar="N", help="Only if the newest version has it: see `show`.")
@click.option("--reason", required=True, help="Kept with the version that takes its place.")
@remote
def withdraw(api: Api, out: Output, name: str, **body: Any) -> int:
    """Publish the content before the newest version again, as a new version."""
    path = ("datasets", name, "withdraw")
    return report_command(out, api.command("POST", path, body))


@dataset.command(epilog=examples("nimbus dataset remove old_orders --reason 'replaced by orders'"))
@click.argument("name")
@click.option("--reason", required=True, help="Kept in the list of commands.")
@remote
def remove(api: Api, out: Output, name: str, reason: str) -> int:
    """Remove a dataset that no active pipeline reads or publishes. Outputs stay until they are purged."""
    path = ("datasets", name, "remove")
    return report_command(out, api.command("POST", path, {"reason": reason}))


def _row(version: dict[str, Any]) -> tuple[str, ...]:
    by = f"{version['run']}.{version['task']}"
    of = version["source"].rpartition(".")[0]
    outside, change = version["outside"], version["change"] or {}
    made = _verified(outside) if outside else version["task"] if by == of else f"{version['task']}, of {of}"
    again = f"; again, by {change['by'] or 'somebody'}: {change['reason']}" if change.get("restored") else ""
    return (
        version["partition"] or "(whole)",
        str(version["number"]),
        version["run"] or f"outside, by {change['by'] or 'somebody'}",
        f"{made}{again}",
        clock(version["at"]),
        ", ".join(f"{key} {value}" for key, value in (version["result"] or {}).items()),
    )


def _verified(outside: dict[str, Any]) -> str:
    return f"{outside['uri']}{'' if outside['digest'] else ' (unverified)'}"
