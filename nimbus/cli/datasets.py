"""`nimbus dataset`: what tasks have published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.cli.client import Api

_VERSION = ("partition", "run", "published by", "at")


@click.group(cls=LazyGroup)
def dataset() -> None:
    """See datasets: named outputs of tasks, which outlive the runs that published them."""


@dataset.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List datasets: who publishes each, how often it was published, and when last."""
    answer = api.get("/datasets")
    if out.as_json:
        out.data(answer)
        return
    rows = [
        (
            row["name"],
            row["partition"] or "",
            ", ".join(row["publishers"]) or "nobody",
            row["published"],
            clock(row["newest"] and row["newest"]["at"]),
        )
        for row in answer["datasets"]
    ]
    columns = ("dataset", "partition", "published by", "versions", "last")
    out.table(columns, rows, empty="no datasets: a task publishes one with `publishes` in its pipeline")


@dataset.command(
    epilog=examples("nimbus dataset show orders", "nimbus dataset show orders --partition eu --limit 10")
)
@click.argument("name")
@click.option("--partition", metavar="PARTITION", help="Only versions of this key or interval.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Versions.")
@remote
def show(api: Api, out: Output, name: str, partition: str | None, limit: int) -> None:
    """Show who publishes a dataset, which times are published, and its versions."""
    path = f"/datasets/{quote(name, safe='')}"
    answer = api.get(path)
    listed = api.get(f"{path}/versions", partition=partition, limit=limit)
    answer |= {"versions": listed["versions"], "complete": listed["complete"]}
    if out.as_json:
        out.data(answer)
        return
    publishers = ", ".join(answer["publishers"]) or "nobody: no active release publishes it"
    by = f", by {answer['partition']}" if answer["partition"] in ("interval", "key") else ""
    out.line(f"{name}{by}: published {answer['published']} times, by {publishers}")
    for span in answer["spans"]:
        out.line(f"  published from {clock(span['start'])} to {clock(span['end'])}")
    out.table(_VERSION, list(map(_row, answer["versions"])), empty="no versions")
    if not answer["complete"]:
        out.line(f"only the first {limit}: name a --partition, or raise --limit")


def _row(version: dict[str, Any]) -> tuple[str, ...]:
    by = f"{version['run']}.{version['task']}"
    of = version["source"].rpartition(".")[0]
    return (
        version["partition"] or "(whole)",
        version["run"],
        version["task"] if by == of else f"{version['task']}, of {of}",
        clock(version["at"]),
    )
