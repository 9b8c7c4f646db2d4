"""`nimbus run children`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.command(epilog=examples("nimbus run children daily-20260301t060000z regions --state failed"))
@click.argument("run_id")
@click.argument("task")
@click.option(
    "--state",
    type=click.Choice(["waiting", "open", "succeeded", "failed", "stopped", "refused"]),
    help="Only items in this state.",
)
@remote
def children(api: Api, out: Output, run_id: str, task: str, state: str | None) -> None:
    """List the items of a task of type `pipeline`, each with its last child run."""
    answer = api.get(("runs", run_id, "tasks", task, "children"))
    found = [row for row in answer["children"] if state in (None, row["state"])]
    if out.told({**answer, "children": found}):
        return
    rows = [
        (row["index"], _words(row["item"]), row["state"], _run(row), row["attempt"] or "") for row in found
    ]
    out.table(("item", "with", "state", "run", "attempt"), rows, empty="no items")


def _words(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{name}={value}" for name, value in item.items())
    return "" if item is None else str(item)


def _run(row: Any) -> str:
    return f"reused from {row['reused_from']}" if row["reused_from"] else row["run"] or ""
