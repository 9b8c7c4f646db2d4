"""What was and is about one pipeline or run: `explain`, `intervals`, `replay`, `children`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output, clock

if TYPE_CHECKING:
    from nimbus.client.api import Api


@click.command(
    epilog=examples(
        "nimbus run explain flights-20260301t060000z-1a2b3c",
        "nimbus run explain flights-20260301t060000z-1a2b3c load -o json",
    )
)
@click.argument("run_id")
@click.argument("task", required=False)
@remote
def explain_run(api: Api, out: Output, run_id: str, task: str | None) -> None:
    """Show why a run, or one of its tasks, is not running: what it waits for, and what would end the wait.

    `next change` is the earliest time at which something changes by itself.
    """
    _show(out, api.get(("runs", run_id, "explanation"), task=task))


@click.command(epilog=examples("nimbus pipeline explain flights"))
@click.argument("name")
@remote
def explain_pipeline(api: Api, out: Output, name: str) -> None:
    """Show why a pipeline is not running: its state, schedule, limits, live runs, backfills and commands.

    `next change` is the earliest time at which something changes by itself, such as the next fire.
    """
    _show(out, api.get(("pipelines", name, "explanation")))


def _show(out: Output, answer: dict[str, Any]) -> None:
    if out.printed_json(answer):
        return
    out.line(f"{answer['id']}: {answer['state']}")
    for reason in answer["reasons"]:
        out.line(f"  {reason['about']}: {reason['why']}")
    if answer["more"]:
        out.line(f"  and {answer['more']} more")
    if answer["next_change"]:
        out.line(f"next change: {clock(answer['next_change'])}")


@click.command(epilog=examples("nimbus pipeline intervals sales --from 2026-01-01 --to 2026-03-31"))
@click.argument("name")
@click.option(
    "--from", "first", metavar="DATE", help="A day in the schedule's zone, or a time with an offset."
)
@click.option("--to", "last", metavar="DATE", help="The last date, included. Default: now.")
@remote
def intervals(api: Api, out: Output, name: str, first: str | None, last: str | None) -> None:
    """Show the state of each date of a pipeline: succeeded, failed, stopped, running, missing, or unknown.

    Without --from it shows the last 30 dates. Dates before the beginning of the index are unknown.
    """
    path = ("pipelines", name, "intervals")
    answer = page = api.get(path, **{"from": first, "to": last})
    while page["next_from"] is not None:
        page = api.get(path, **{"from": page["next_from"], "to": last})
        answer["intervals"] += page["intervals"]
    answer["next_from"] = None
    if out.printed_json(answer):
        return
    rows = [
        (clock(row["end"]), clock(row["start"]), row["state"], row["run"], clock(row["ended_at"]))
        for row in answer["intervals"]
    ]
    columns = ("date", "data since", "state", "run", "ended")
    out.table(columns, rows, empty="no dates: the pipeline has no schedule, or it has not fired in this time")


@click.command(epilog=examples("nimbus run replay sales-20260301t060000z --at 2026-03-01T06:10:00Z"))
@click.argument("run_id")
@click.option("--at", required=True, metavar="TIME", help="With an offset, such as 2026-03-01T06:10:00Z.")
@remote
def replay(api: Api, out: Output, run_id: str, at: str) -> None:
    """Show a run as it was at a time in its past, rebuilt from its record.

    Attempts that the record only counts, pauses that are over, and child runs are not shown.
    """
    answer = api.get(("runs", run_id, "replay"), at=at)
    if out.printed_json(answer):
        return
    out.line(f"run    {answer['run_id']} at {clock(answer['at'])}")
    out.line(f"state  {answer['state']}" + (f" ({answer['reason']})" if answer["reason"] else ""))
    out.line("")
    rows = []
    for task in answer["tasks"]:
        last = task["attempts"][-1] if task["attempts"] else {}
        rows.append(
            (task["name"], task["state"], *(last.get(key) for key in ("number", "worker", "outcome")))
        )
    out.table(("task", "state", "attempt", "worker", "outcome"), rows)
    out.line("")
    events = [
        (clock(event["at"]), event["kind"], event["task"] or "", event["attempt"] or "", event["detail"])
        for event in answer["events"]
    ]
    out.table(("at", "event", "task", "attempt", "detail"), events)


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
    chosen = [row for row in answer["children"] if state in (None, row["state"])]
    if out.printed_json({**answer, "children": chosen}):
        return
    rows = [
        (row["index"], _words(row["item"]), row["state"], _run(row), row["attempt"] or "") for row in chosen
    ]
    out.table(("item", "with", "state", "run", "attempt"), rows, empty="no items")


def _words(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{name}={value}" for name, value in item.items())
    return "" if item is None else str(item)


def _run(row: Any) -> str:
    return f"reused from {row['reused_from']}" if row["reused_from"] else row["run"] or ""
