"""`nimbus simulate`: predicts what the cluster's schedules will do; computed here from the cluster's data."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import duration, examples, remote
from nimbus.cli.output import Output, clock, span

if TYPE_CHECKING:
    from nimbus.client.api import Api
    from nimbus.engine.forecast import Expected, Forecast

_MAX_RUNS = 500


class Known(NamedTuple):
    """The expected duration of a pipeline's runs."""

    duration: timedelta
    basis: str
    """`median of 12`, or `assumed`."""


@dataclass(slots=True)
class Line:
    """The totals of one pipeline."""

    fires: int = 0
    runs: int = 0
    skipped: int = 0
    replaced: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds, one entry for each run that waited."""


@click.command(
    epilog=examples(
        "nimbus simulate --from 2026-03-28 --to 2026-03-31",
        "nimbus simulate --from 2026-01-01 --to 2027-01-01 --max-running 20",
        "nimbus simulate --from 2026-03-01 --to 2026-03-02 --pipeline sales --runs -o json",
    )
)
@click.option(
    "--from", "start", required=True, metavar="TIME", help="Fire times after this; UTC without an offset."
)
@click.option("--to", "end", required=True, metavar="TIME", help="Fire times up to and including this.")
@click.option(
    "--pipeline", "only", metavar="NAME", help="Show only this pipeline; the others are simulated, too."
)
@click.option("--runs", "each", is_flag=True, help="Also show each fire time.")
@click.option(
    "--assume",
    callback=duration,
    default="10m",
    show_default=True,
    metavar="D",
    help="Duration of pipelines without history.",
)
@click.option(
    "--max-running",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use this instead of the cluster's runs.max_running.",
)
@remote
def simulate(
    api: Api,
    out: Output,
    start: str,
    end: str,
    only: str | None,
    each: bool,
    assume: timedelta,
    max_running: int | None,
) -> None:
    """Predict what active schedules do: fire times, runs that wait or are skipped, and ends of runs.

    The expected duration is the median of the last successful runs. Limits of pipelines (`concurrency`) and
    of the cluster are applied; manual runs and waits for slots are not predicted. Changes nothing.
    """
    from nimbus.engine.forecast import forecast

    after, until = _time("--from", start), _time("--to", end)
    if until <= after:
        raise CliError("--to must be later than --from.", code="bad_time", exit_code=Exit.USAGE)
    limit = max_running or api.get("/status")["runs_max_running"]
    known = _durations(api.get("/runs", state="succeeded", limit=_MAX_RUNS)["runs"])
    assumed = Known(assume, "assumed")
    expected = _expected(api, known, assumed, with_priority=limit is not None)
    if only is not None and only not in {pipeline.name for pipeline in expected}:
        raise CliError(f"{only} has no schedule that fires.", code="no_schedule", exit_code=Exit.NOT_FOUND)
    lines: dict[str, Line] = {str(pipeline.name): Line() for pipeline in expected}
    shown: list[Forecast] = []
    for event in forecast(expected, after, until, max_running=limit):
        _count(lines[event.pipeline], event)
        if each and only in (None, event.pipeline):
            shown.append(event)
    names = sorted(lines) if only is None else [only]
    basis = {name: known.get(name, assumed) for name in names}
    if out.as_json:
        rows = [_summary(name, lines[name], basis[name]) for name in names]
        whole = {"from": after.isoformat(), "to": until.isoformat(), "max_running": limit, "pipelines": rows}
        out.data({**whole, "runs": [_data(run) for run in shown]} if each else whole)
        return
    columns = ("pipeline", "fires", "run", "skipped", "replaced", "waited", "longest wait", "takes", "")
    out.table(columns, [_row(name, lines[name], basis[name]) for name in names], empty="no schedule fires")
    if each:
        out.line("")
        out.table(
            ("fire", "pipeline", "", "start", "end"),
            [_run_row(_data(run)) for run in shown],
            empty="nothing fires",
        )


def _time(option: str, text: str) -> datetime:
    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or not 1000 <= moment.year < 9000:
        message = (
            f"{option} {text!r} is not a time such as 2026-03-28 or 2026-03-28T06:00:00+01:00, in the years "
            "1000 to 8999."
        )
        raise CliError(message, code="bad_time", exit_code=Exit.USAGE)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _durations(runs: Iterable[Mapping[str, Any]]) -> dict[str, Known]:
    durations: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run["started_at"] and run["finished_at"]:
            took = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
            durations[run["pipeline"]].append(took.total_seconds())
    return {
        name: Known(timedelta(seconds=statistics.median(times)), f"median of {len(times)}")
        for name, times in durations.items()
    }


def _expected(api: Api, known: Mapping[str, Known], assumed: Known, *, with_priority: bool) -> list[Expected]:
    from nimbus.cli.pipeline.releases import schedules_in
    from nimbus.domain.ids import PipelineName
    from nimbus.domain.pipelines.pipeline import Concurrency, Priority, WhenFull
    from nimbus.engine.forecast import Expected

    pipelines = []
    for row in api.get("/pipelines")["pipelines"]:
        if row["state"] != "active" or row["schedule"] is None or row["starts_by_data"]:
            continue
        full = row.get("concurrency")
        priority = _priority(api, row["name"]) if with_priority else None
        pipelines += [
            Expected(
                name=PipelineName(row["name"]),
                schedule=schedule,
                duration=known.get(row["name"], assumed).duration,
                concurrency=full and Concurrency(limit=full["limit"], when_full=WhenFull(full["when_full"])),
                priority=Priority.MEDIUM if priority is None else Priority[priority.upper()],
                position=_ahead(
                    row["positions"].get(schedule.name) if schedule.name else row["schedule_position"]
                ),
            )
            for schedule in schedules_in(row)
        ]
    return pipelines


def _ahead(position: str | None) -> datetime | None:
    """The position of a schedule, if a leader's clock that was ahead has moved it into the future."""
    moment = None if position is None else datetime.fromisoformat(position)
    return moment if moment is not None and moment > datetime.now(UTC) else None


def _priority(api: Api, name: str) -> str | None:
    """The priority of a pipeline's runs, which orders them when the cluster is full. None: unknown."""
    spec = api.get(("pipelines", name))["spec"]
    return None if spec is None else str(spec["priority"])


def _count(line: Line, event: Forecast) -> None:
    line.fires += 1
    line.runs += event.started_at is not None
    line.skipped += event.fate.value == "skipped"
    line.replaced += event.fate.value == "replaced"
    if event.waited:
        line.waits.append(event.waited.total_seconds())


def _summary(name: str, line: Line, known: Known) -> dict[str, Any]:
    return {
        "pipeline": name,
        "fires": line.fires,
        "runs": line.runs,
        "skipped": line.skipped,
        "replaced": line.replaced,
        "waited": len(line.waits),
        "longest_wait_s": max(line.waits, default=0.0),
        "duration_s": known.duration.total_seconds(),
        "basis": known.basis,
    }


def _row(name: str, line: Line, known: Known) -> tuple[Any, ...]:
    longest = span(max(line.waits)) if line.waits else ""
    counts = (line.fires, line.runs, line.skipped or "", line.replaced or "", len(line.waits) or "")
    return (name, *counts, longest, span(known.duration.total_seconds()), known.basis)


def _run_row(data: Mapping[str, Any]) -> tuple[str, ...]:
    name = " ".join(filter(None, (data["pipeline"], data["schedule"])))
    return clock(data["fire"]), name, data["fate"], clock(data["start"]), clock(data["end"])


def _data(event: Forecast) -> dict[str, Any]:
    return {
        "pipeline": event.pipeline,
        "schedule": event.schedule,
        "fire": event.fire.isoformat(),
        "fate": event.fate.value,
        "start": event.started_at and event.started_at.isoformat(),
        "end": event.ended_at and event.ended_at.isoformat(),
    }
