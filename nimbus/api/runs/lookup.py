"""Finds runs: in the command queue, in ZooKeeper while live and for a while after, then in history."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import NamedTuple, cast

from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.runs.models import RequestedRunModel
from nimbus.api.seen import SeenHistory
from nimbus.api.services import ApiServices, if_available
from nimbus.api.submitting import command_model
from nimbus.domain.commands import CommandOutcome, StartRun
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import CommandId, PipelineName, RunId
from nimbus.domain.pipelines.filters import Filter
from nimbus.domain.runs.purge import fate_of
from nimbus.domain.runs.run import ListedRun, Run, RunPlace, RunState, place, place_at
from nimbus.ports import ClusterReader

MAX_RUNS = 500
READ_AT_ONCE = 200
MAX_PARTS = 10
"""How many pages of runs one answer reads, to find those that pass a filter."""
MAX_INDEXES = 10
"""Of so many pipelines, history's own indexes are read; of more, the one of all runs."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that a leader has started."""

    run: Run
    archived: bool
    """True: it was read from history."""


def live_runs(services: ApiServices, pipeline: PipelineName) -> list[Run]:
    """The runs of a pipeline that have not ended."""
    listed = services.reader.run_list().values()
    wanted = [run.id for run in listed if run.pipeline == pipeline and not run.state.is_final]
    return [run for run in services.reader.runs(wanted).values() if not run.state.is_final]


def read_in_parts(reader: ClusterReader, wanted: Sequence[RunId]) -> Iterator[Run]:
    """Live runs, READ_AT_ONCE of them at a time, to limit memory."""
    for start in range(0, len(wanted), READ_AT_ONCE):
        yield from reader.runs(wanted[start : start + READ_AT_ONCE]).values()


def find_run_or_request(services: ApiServices, run_id: str) -> FoundRun | RequestedRunModel:
    """A run, or the command that requests it, or the refusal.

    Raises ObjectNotFoundError: the run is unknown.
    """
    wanted = RunId(run_id)
    live = services.reader.run(wanted)
    if live is None:
        for queued in services.reader.commands():
            if isinstance(queued.command, StartRun) and queued.command.run_id == wanted:
                return _pending(services, queued.id, queued.command)
        live = services.reader.run(wanted)  # it was started between the two reads
    if live is not None:
        return FoundRun(live, archived=False)
    old = services.history.read(wanted)
    if old is not None:
        return FoundRun(old, archived=True)
    refusal = services.commands.refused_start(wanted)
    if refusal is not None:
        return _refused(wanted, refusal)
    fate = fate_of(services.history.purged(wanted))
    raise ObjectNotFoundError("unknown_run", f"run {run_id} {fate}: see `nimbus run list`.")


def _pending(services: ApiServices, command_id: CommandId, start: StartRun) -> RequestedRunModel:
    earlier = None if start.rerun_of is None else services.reader.run(start.rerun_of)
    waits = earlier is not None and not earlier.state.is_final
    return RequestedRunModel(
        id=start.run_id,
        pipeline=start.pipeline,
        state="pending",
        reason=f"waits for the end of run {start.rerun_of}" if waits else "",
        command=command_model(command_id, None, run_id=start.run_id),
    )


def _refused(run_id: RunId, refusal: CommandOutcome) -> RequestedRunModel:
    return RequestedRunModel(
        id=run_id,
        pipeline=None,
        state="refused",
        reason=refusal.message,
        command=command_model(refusal.command, refusal, run_id=run_id),
    )


def find_run(services: ApiServices, run_id: str) -> Run:
    """A run that a leader has started. Raises as `found_run`."""
    return found_run(services, run_id).run


def found_run(services: ApiServices, run_id: str) -> FoundRun:
    """A run that a leader has started, and where it is.

    Raises ObjectNotFoundError: there is none; the code distinguishes pending, refused and unknown runs.
    """
    run = find_run_or_request(services, run_id)
    if isinstance(run, FoundRun):
        return run
    why = run.reason or f"command {run.command.command_id} waits for a leader's decision"
    raise ObjectNotFoundError(f"run_{run.state}", f"run {run_id} is not started: {why}")


def refuse_used_id(services: ApiServices, run_id: str) -> None:
    """Refuse an id that a run in history has: ids name attempts and output folders, so they are used once.

    The leader checks runs in ZooKeeper; this checks runs that have moved to history. While storage does not
    answer, the check is skipped, so that runs can still be started.

    Raises RefusedError: history has a run of this id.
    """
    wanted = RunId(run_id)
    if services.reader.run(wanted) is not None:
        return  # a repeated request starts one run: the leader answers it
    if if_available(lambda: cast("SeenHistory", services.history).has_had(wanted)):
        raise RefusedError(
            "run_exists", f"run {run_id} was started, and finished, before. Choose another id."
        )


class RunPage(NamedTuple):
    """A page of the list of runs."""

    rows: list[tuple[Run, bool]]
    """Runs; True: read from history."""
    next_after: RunPlace | None
    """The place after which the next page begins; None: there is none."""
    at_least: int
    """Number of runs, at least, from the first of this page on."""
    complete: bool
    """True: history answered."""


def list_runs(services: ApiServices, only: Filter, *, limit: int, after: RunPlace | None = None) -> RunPage:
    """A page of runs, newest first, in the order of `nimbus.domain.runs.run`.

    Live runs are listed even when history's storage is down: an outage hides only finished runs. Of a filter
    without index, MAX_PARTS times `limit` runs are read at most, so a page may be short.
    """
    tagged = None if only.tag is None and only.owner is None else services.reader.pipelines()
    pipelines = only.pipelines(tagged or ())
    rows: list[tuple[Run, bool]] = []
    for _ in range(1 if only.is_indexed else MAX_PARTS):
        part = _part(services, only, pipelines, limit, after)
        rows += [row for row in part.rows if only.takes_run(row[0])]
        if part.next_after is None or len(rows) >= limit:
            break
        after = part.next_after
    if len(rows) > limit:
        rows, part = rows[:limit], part._replace(next_after=place(rows[limit - 1][0]))
    return part if only.is_indexed else part._replace(rows=rows, at_least=len(rows))


def _part(
    services: ApiServices,
    only: Filter,
    pipelines: Collection[PipelineName] | None,
    limit: int,
    after: RunPlace | None,
) -> RunPage:
    """A page of the runs of some pipelines."""
    if only.created.until is not None:
        newest = place_at(only.created.until, "")
        after = newest if after is None else max(after, newest)
    listed = services.reader.run_list()
    past, edge, complete = _past_runs(services, only, pipelines, limit, after)
    known: dict[str, ListedRun | Run] = {**past, **listed}
    ahead = [
        run
        for run in known.values()
        if (pipelines is None or run.pipeline in pipelines)
        and only.takes_listed(run)
        and (after is None or place(run) > after)
    ]
    # Beyond the part of history that was read, the runs between live runs are not known yet.
    first = [place for place in _first_places(ahead, limit + 1) if edge is None or place <= edge]
    shown = [RunId(place.id) for place in first[:limit]]
    live = services.reader.runs(run for run in shown if run in listed)
    rows = ((live.get(run) or past.get(run), run not in live) for run in shown)
    return RunPage(
        rows=[(run, archived) for run, archived in rows if run is not None],
        next_after=first[limit - 1] if len(first) > limit else edge,
        at_least=len(ahead),
        complete=complete,
    )


def _first_places(runs: Collection[ListedRun | Run], most: int) -> list[RunPlace]:
    """The places of the first `most` runs. Places of older runs are not computed."""
    newest = nlargest(most, runs, key=attrgetter("created_at"))
    if not newest:
        return []
    since = newest[-1].created_at.replace(microsecond=0)
    return nsmallest(most, (place(run) for run in runs if run.created_at >= since))


def last_success(services: ApiServices, run: Run) -> Run | None:
    """The last successful run of the same pipeline that was created before `run`.

    Searches the runs in ZooKeeper, and history.
    """
    listed = services.reader.run_list().values()
    near = [other for other in listed if other.pipeline == run.pipeline and other.state is RunState.SUCCEEDED]
    before = (other for other in near if other.created_at < run.created_at)
    newest = max(before, key=lambda run: (run.created_at, run.id), default=None)
    runs = [] if newest is None else list(services.reader.runs([newest.id]).values())
    runs += services.history.recent(run.pipeline, 1, place(run), state=RunState.SUCCEEDED).runs
    fitting = (
        other for other in runs if other.state is RunState.SUCCEEDED and other.created_at < run.created_at
    )
    return max(fitting, key=lambda run: (run.created_at, run.id), default=None)


def _past_runs(
    services: ApiServices,
    only: Filter,
    pipelines: Collection[PipelineName] | None,
    limit: int,
    after: RunPlace | None,
) -> tuple[dict[str, Run], RunPlace | None, bool]:
    """Runs in history that a list may need, the place up to which all are known, and if history answered."""
    state, since = only.state, only.created.since
    if state is not None and not state.is_final:
        return {}, None, True
    by_index = pipelines is not None and len(pipelines) <= MAX_INDEXES
    names = sorted(pipelines or ()) if by_index else [None]
    recent = partial(services.history.recent, limit=limit, after=after, state=state, since=since)
    parts = if_available(lambda: [recent(name) for name in names])
    if parts is None:
        return {}, None, False
    edges = [part.more_after for part in parts if part.more_after is not None]
    return {run.id: run for part in parts for run in part.runs}, min(edges, default=None), True


def unknown_task(run: Run, task: str) -> ObjectNotFoundError:
    """The error that a run has no such task."""
    return ObjectNotFoundError(
        "unknown_task", f"run {run.id} has no task {task}; it has {', '.join(sorted(run.tasks))}."
    )
