"""`nimbus run`: start, list, show, stop. Other commands are in their own modules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import examples, filters, parameters, remote, report_command, report_started, selected
from nimbus.cli.output import Columns, Output, between, clock, short
from nimbus.cli.run.rows import application_rows, cost_rows, output_rows, task_rows
from nimbus.domain.wording import counted

if TYPE_CHECKING:
    from nimbus.client import Client
    from nimbus.client.api import Api

_STATES = ["queued", "running", "stopping", "succeeded", "failed", "stopped"]
_PRIORITIES = ["highest", "high", "medium", "low", "lowest"]


@click.group(
    cls=LazyGroup,
    lazy={
        "start": Lazy("nimbus.cli.run.runs:start", "Start a run of a pipeline."),
        "list": Lazy("nimbus.cli.run.runs:list_", "List runs, newest first."),
        "show": Lazy(
            "nimbus.cli.run.runs:show", "Show one run: tasks, attempts, times, and why something waits."
        ),
        "explain": Lazy("nimbus.cli.run.explain:explain_run", "Show why a run or a task is not running."),
        "watch": Lazy("nimbus.cli.run.watch:watch", "Follow a run to its end; the exit code is its result."),
        "logs": Lazy("nimbus.cli.run.watch:logs", "Print the log of a task, also while it grows."),
        "events": Lazy("nimbus.cli.run.watch:events", "Store Spark's event log of a task in a file."),
        "outputs": Lazy("nimbus.cli.run.outputs:outputs", "List the files that tasks have left."),
        "get": Lazy("nimbus.cli.run.outputs:get", "Copy the output of a task into a new folder."),
        "stop": Lazy("nimbus.cli.run.runs:stop", "End a run."),
        "rerun": Lazy("nimbus.cli.run.commands:rerun", "Run a run again as a new run: all tasks, or some."),
        "children": Lazy("nimbus.cli.run.explain:children", "List the child runs of a task."),
        "replay": Lazy("nimbus.cli.run.explain:replay", "Show a run as it was at a time in its past."),
        "pause": Lazy("nimbus.cli.run.commands:pause", "Start no new tasks of a run."),
        "resume": Lazy("nimbus.cli.run.commands:resume", "Resume a paused run."),
        "note": Lazy("nimbus.cli.run.commands:note", "Note something about an ended run."),
        "purge": Lazy("nimbus.cli.run.commands:purge", "Delete logs, outputs or history of ended runs."),
        "approve": Lazy("nimbus.cli.run.commands:approve", "Approve or reject a waiting task."),
    },
)
def run() -> None:
    """Start, watch and stop runs; read their logs."""


@click.command(
    epilog=examples(
        "nimbus run start flights --param first_month=1 --param last_month=3 --watch",
        "echo '{\"first_month\": 6}' | nimbus run start flights --params -",
        "nimbus run start flights --run-id flights-backfill-01     # safe to repeat",
    )
)
@click.argument("pipeline")
@click.option("--param", "pairs", multiple=True, metavar="KEY=VALUE", help="One parameter. Repeat for more.")
@click.option(
    "--params", "document", metavar="JSON", help="All parameters as a JSON object; - reads it from stdin."
)
@click.option("--run-id", metavar="ID", help="Your own id: the same id starts one run.")
@click.option(
    "--logical-date",
    metavar="TIME",
    help="The run's logical date, such as 2026-01-31T06:00:00Z. Default: the end of its interval, else now.",
)
@click.option(
    "--data-interval",
    nargs=2,
    metavar="FROM TO",
    help="The run's data interval: from FROM (included) to TO (excluded). Default: none.",
)
@click.option("--priority", type=click.Choice(_PRIORITIES), help="Default: the pipeline's priority.")
@click.option("--only", "only", multiple=True, metavar="TASK", help="Run only this task. Repeat for more.")
@click.option("--from", "from_", multiple=True, metavar="TASK", help="Run this task and its dependents.")
@click.option("--upto", "upto", multiple=True, metavar="TASK", help="Run this task and all that it needs.")
@click.option(
    "--reuse", metavar="RUN", help="With --only, --from, --upto: use outputs of RUN for the other tasks."
)
@click.option("--watch", "watching", is_flag=True, help="Follow it; the exit code is the run's result.")
@click.option(
    "--watch-timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop following: exit code 5."
)
@remote
def start(
    api: Client,
    out: Output,
    pipeline: str,
    pairs: tuple[str, ...],
    document: str | None,
    run_id: str | None,
    logical_date: str | None,
    data_interval: tuple[str, str] | None,
    priority: str | None,
    only: tuple[str, ...],
    from_: tuple[str, ...],
    upto: tuple[str, ...],
    reuse: str | None,
    watching: bool,
    watch_timeout: float | None,
) -> int:
    """Start a run of a pipeline's active release."""
    started = api.start(
        pipeline,
        parameters(pairs, document),
        run_id=run_id,
        logical_date=logical_date,
        data_interval=data_interval,
        priority=priority,
        selection=_selection(selected({"only": only, "from": from_, "upto": upto}), reuse),
    )
    if not watching:
        return report_started(out, started.id, dict(started.document))
    from nimbus.cli.run.watch import follow

    return follow(api, out, started.id, timeout_s=watch_timeout)


def _selection(chosen: tuple[str, tuple[str, ...]] | None, reuse: str | None) -> dict[str, Any] | None:
    if chosen is None:
        if reuse is not None:
            raise click.UsageError("--reuse needs --only, --from or --upto")
        return None
    return {"scope": chosen[0], "tasks": chosen[1], "reuse": reuse}


@click.command(name="list")
@filters
@click.option("--state", type=click.Choice(_STATES), help="Only in this state.")
@click.option("--from", "first", metavar="DATE", help="Only created then or later: a day in UTC, or a time.")
@click.option("--to", "last", metavar="DATE", help="Only created until then; a day is included.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True)
@remote
def list_(
    api: Api,
    out: Output,
    where: dict[str, Any],
    state: str | None,
    first: str | None,
    last: str | None,
    limit: int,
) -> None:
    """List runs, newest first: live ones and those in history."""
    answer = api.listed("/runs", "runs", limit, **where, **{"state": state, "from": first, "to": last})
    now = datetime.now(UTC)
    columns: Columns = {
        "run": "id",
        "pipeline": "pipeline",
        "state": _state,
        "tasks": lambda row: f"{row['tasks_done']}/{row['tasks_total']}",
        "by": lambda row: row.get("submitted_by"),
        "created": lambda row: clock(row["created_at"]),
        "took": lambda row: between(row["created_at"], row["finished_at"], now),
        "reason": "reason",
    }
    out.listed(answer, "runs", columns)
    if not (out.as_json or answer["history_complete"]):
        out.note("history did not answer: finished runs may be missing from this list.")


def _state(run: dict[str, Any]) -> str:
    """Its state, with what else a reader of a list must know."""
    paused = "paused" if run.get("paused") and not run["finished_at"] else ""
    return ", ".join(filter(None, (run["state"], paused, run.get("keeps_running") and "kept running")))


def _asked(run: dict[str, Any]) -> str:
    cause = str(run["cause"])
    if link := run.get("parent"):
        cause = f"item {link['index']} of task {link['task']} of run {link['run']}"
    return f"{cause}, by {by}" if (by := run.get("submitted_by")) else cause


def _particulars(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows that only some runs have: name and value."""
    if interval := run.get("data_interval"):
        yield "data", f"from {clock(interval['start'])} to {clock(interval['end'])}"
    names = {"rerun of": "rerun_of", "selected": "selected", "note": "note", "waits": "why"}
    yield from ((name, said) for name, field in names.items() if (said := run.get(field)))
    if noted := run.get("noted"):
        about = f"{noted['task']}: " if noted["task"] else ""
        yield "noted", f"{about}{noted['text']} ({noted['by']}, {clock(noted['at'])})"
    for gone in run.get("purged", ()):
        yield "purged", f"{gone['part']} on {gone['at'][:10]} by {gone['by']} ({gone['why']})"


@click.command()
@click.argument("run_id")
@remote
def show(api: Api, out: Output, run_id: str) -> None:
    """Show one run: tasks, attempts, a small Gantt chart, and why something waits."""
    place = ("runs", run_id)
    answer = api.get(place)
    results = _results(api, place, answer)
    if out.as_json:
        answer |= {"results": results} if results else {}
        out.data(answer)
        return
    from nimbus.cli.run.rows import gantt

    now = datetime.now(UTC)
    out.line(f"run       {answer['id']}")
    out.line(f"state     {_state(answer)}" + (f" ({answer['reason']})" if answer["reason"] else ""))
    if answer["state"] in ("pending", "refused"):
        out.line(f"command   {answer['command']['command_id']} ({answer['command']['status']})")
        return
    out.line(f"pipeline  {answer['pipeline']}, release {short(answer['release'])}")
    when = f"{clock(answer['created_at'])} ({_asked(answer)}), for {clock(answer['logical_date'])}"
    out.line(f"created   {when}")
    for name, said in _particulars(answer):
        out.line(f"{name:9} {said}")
    _show_given(out, answer)
    out.line("")
    out.table(("task", "state", "attempts", "why"), task_rows(answer))
    if any(task["attempts"] for task in answer["tasks"]):
        out.line("")
        for line in gantt(answer, now):
            out.line(line)
    if left := output_rows(answer, results):
        out.line("")
        out.table(("task", "rows", "bytes", "output", "result"), left)
    if costs := cost_rows(answer):
        out.line("")
        out.table(("task", "attempt", "cost"), costs)
    if applications := application_rows(answer):
        out.line("")
        out.table(("task", "attempt", "Spark application", "JVM", "history"), applications)


def _show_given(out: Output, run: dict[str, Any]) -> None:
    for word, field in (("with", "parameters"), ("vars", "variables")):
        if given := run[field]:
            out.line(f"{word:<9} " + ", ".join(f"{key}={value}" for key, value in given.items()))
    for read in run["reads"]:
        pinned = "not pinned yet" if read["pinned"] is None else counted(read["pinned"], "version")
        of = "" if read["dataset"] == read["name"] else f" of dataset {read['dataset']}"
        out.line(f"{'reads':<9} {read['name']}{of}: {pinned}")


def _results(api: Api, place: tuple[str, ...], run: dict[str, Any]) -> dict[str, Any]:
    gave = any(
        task.get("reused_from") or any(attempt.get("has_result") for attempt in task["attempts"])
        for task in run["tasks"]
    )
    return dict(api.get((*place, "results"))["results"]) if gave else {}


@click.command()
@click.argument("run_id")
@click.option("--reason", required=True, help="Kept in the run's history.")
@remote
def stop(api: Client, out: Output, run_id: str, reason: str) -> int:
    """End a run: no new task starts, running tasks are stopped. Safe to repeat."""
    return report_command(out, api.stop(run_id, reason=reason))
