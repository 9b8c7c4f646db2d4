"""Explains why a pipeline or one of its backfills does not run. Pure: facts in, reasons out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest

from nimbus.api.explain.data import DueView, why_no_start
from nimbus.api.explain.queue import CountedRun, QueueView, run_names
from nimbus.api.explain.run import ReasonModel
from nimbus.api.explain.task import why_parked
from nimbus.definition.backfill_dates import dates_left
from nimbus.definition.cron import fires_between, next_fire
from nimbus.domain.cluster.schedulers import ParkedKey
from nimbus.domain.commands import QueuedCommand, StartRun
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.backfill import Backfill, BackfillState
from nimbus.domain.pipelines.catalog import CLOCK_DIFFERENCE, PipelineRecord, PipelineState, Skips
from nimbus.domain.pipelines.pipeline import Schedule, WhenFull
from nimbus.domain.runs.run import ListedRun, Run, RunState
from nimbus.domain.starts.places import in_cluster, in_pipeline

MAX_DUE = 1000
"""Limit of passed fire times that are counted."""
MAX_RUNS = 10
"""Limit of explained live runs; the others are only counted."""
_WHEN_FULL = {
    WhenFull.QUEUE: "a run that starts now is queued (when_full: queue)",
    WhenFull.SKIP: "a fire starts no run while a scheduled one is under way (when_full: skip)",
    WhenFull.REPLACE: "a fire stops the oldest scheduled run (when_full: replace)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """Facts that the runs of a pipeline depend on."""

    now: datetime
    leader: str | None
    """Id of the confirmed leader."""
    quarantined: str | None
    """Why the pipeline is quarantined; None: it is not."""
    lacking: Mapping[str, Sequence[str]]
    """Missing files of the pipeline, by the scheduler's id."""
    parents: Collection[PipelineName]
    """Pipelines whose tasks start its runs."""
    queue: QueueView
    runs: Collection[Run]
    """Those of its live runs that are explained, see `explained_first`."""
    why_runs: Iterable[ReasonModel]
    """What they wait for."""
    backfills: Iterable[tuple[Backfill, str]]
    """Backfills that have not ended, each with what it waits for."""
    commands: Sequence[QueuedCommand]
    """Waiting commands about the pipeline, oldest first."""
    due: DueView | None = None
    """What is due by data; None: the pipeline does not start by data."""
    parked: Collection[ParkedKey] = ()
    """Keys that the leader has parked."""


def explain_pipeline(record: PipelineRecord, view: PipelineView) -> list[ReasonModel]:
    """Reasons: what blocks the pipeline, then its schedule, limits, runs, backfills and commands."""
    reasons = [ReasonModel(about="pipeline", why=told) for told in _held(record, view)]
    schedules = record.profile.schedules
    if record.profile.starts_by_data:
        reasons += _data(record, view, is_held=bool(reasons))
    elif not schedules:
        reasons.append(ReasonModel(about="schedule", why=_no_schedule(record, view)))
    else:
        reasons += [_schedule(record, schedule, view) for schedule in schedules]
    if record.skips.listed:
        reasons.append(ReasonModel(about="skipped fires", why=_skipped(record.skips)))
    own = [run for run in view.queue.live if run.pipeline == record.name]
    if (full := _full(record, own, view.queue)) is not None:
        reasons.append(ReasonModel(about="concurrency", why=full))
    reasons += view.why_runs
    if (left := len(own) - MAX_RUNS) > 0:
        reasons.append(ReasonModel(about="runs", why=f"{left} more are live"))
    reasons += [ReasonModel(about=f"backfill {backfill.id}", why=told) for backfill, told in view.backfills]
    reasons += [
        ReasonModel(about=f"command {queued.id}", why=_waiting(queued, place, view))
        for place, queued in enumerate(view.commands)
    ]
    return reasons


def _data(record: PipelineRecord, view: PipelineView, *, is_held: bool) -> list[ReasonModel]:
    if view.due is None:
        why = f"what is due cannot be read: `nimbus pipeline activate {record.name}` writes it again"
        return [ReasonModel(about="data", why=why)]
    told = why_no_start(view.due, record.profile, view.now, is_held=is_held)
    return [ReasonModel(about="data", why=why) for why in told]


def _held(record: PipelineRecord, view: PipelineView) -> Iterator[str]:
    """Reasons that prevent all runs of the pipeline."""
    name = record.name
    if (parked := why_parked(view.parked, "pipeline", name)) is not None:
        yield parked
    if record.state is PipelineState.INACTIVE:
        yield f"it was published and never activated: `nimbus pipeline activate {name}`"
    if record.state is PipelineState.PAUSED:
        yield (
            f"it is paused, at the latest since {_at(record.updated_at)}: neither its schedule nor a "
            f"backfill starts runs; `nimbus pipeline activate {name}` resumes it"
        )
    if view.quarantined is not None:
        yield (
            f"it is quarantined: {view.quarantined}; publish and activate its release again, "
            "or restore the files in storage"
        )
    if view.queue.held is not None:
        yield f"{view.queue.held}; what comes due is dealt with after that, and runs that are asked for wait"
    if view.leader is None:
        yield "no scheduler leads at the moment: nothing starts until one does"
    for scheduler, files in sorted(view.lacking.items()):
        yield f"scheduler {scheduler} lacks {', '.join(files)} of it, and fetches them"


def _no_schedule(record: PipelineRecord, view: PipelineView) -> str:
    others = " or a backfill"
    if view.parents:
        others = f", a backfill, or tasks of pipeline {', '.join(sorted(view.parents))}"
    return f"it has none: start runs with `nimbus run start {record.name}`{others}"


def _schedule(record: PipelineRecord, schedule: Schedule, view: PipelineView) -> ReasonModel:
    said, about = schedule.in_words, f"schedule {schedule.name}".rstrip()
    position = record.position_of(schedule)
    ahead = next_fire(schedule, record.fires_after(schedule, view.now))
    if record.state is not PipelineState.ACTIVE or position is None:
        return ReasonModel(about=about, why=f"{said}: it fires while the pipeline is active")
    if ahead is None:
        return ReasonModel(about=about, why=f"{said}: it never fires again")
    due = fires_between(schedule, position, view.now, MAX_DUE)
    after = f"the next fire is at {_at(ahead)}"
    if position - view.now > CLOCK_DIFFERENCE:
        after += (
            f"; fire times until {_at(position)} are done, because the clock of a leader was ahead: "
            f"`nimbus pipeline rewind {record.name}` sets this back to now"
        )
    if due:
        count = f"{len(due)} or more" if len(due) == MAX_DUE else str(len(due))
        last = "" if len(due) == 1 else f", the first at {_at(due[0])}"
        after = (
            f"{count} fire times have passed since {_at(position)}{last} (catchup: {schedule.catchup}): "
            f"{_who_fires(record, view)}; {after}"
        )
    known_until = None if schedule.days is None else max(schedule.days.exceptions, default=None)
    if known_until is not None and known_until < ahead.date():
        after += f"; calendar {schedule.calendar} names no date after {known_until}: is it up to date?"
    return ReasonModel(about=about, why=f"{said}: {after}", until=ahead)


def _who_fires(record: PipelineRecord, view: PipelineView) -> str:
    if why_parked(view.parked, "pipeline", record.name) is not None:
        return "the leader deals with them once it tries again"
    if view.quarantined is not None:
        return "they are dealt with once it is not quarantined"
    if view.queue.held is not None:
        return "they are dealt with after the hold"
    return "the leader deals with them next" if view.leader else "the next leader deals with them"


def _skipped(skips: Skips) -> str:
    last = skips.listed[-1]
    when = f"at {_at(last.last)}"
    if last.count > 1:
        when = f"{last.count} from {_at(last.first)} to {_at(last.last)}"
    why = f": {last.reason}" if last.reason else ""
    return f"{skips.total} fire times started no run; the last {when}{why}"


def explained_first(live: Iterable[CountedRun], pipeline: PipelineName) -> list[RunId]:
    """Its live runs that are explained: those under way, oldest first, and then queued runs."""
    own = (run for run in live if run.pipeline == pipeline)
    ranked = nsmallest(MAX_RUNS, own, lambda run: (run.state is RunState.QUEUED, run.created_at, run.id))
    return [run.id for run in ranked]


def _full(record: PipelineRecord, own: list[CountedRun], queue: QueueView) -> str | None:
    """The limit that prevents another run; None: there is room."""
    under_way = [run for run in own if in_pipeline(run)]
    concurrency = record.profile.concurrency
    if concurrency is not None and len(under_way) >= concurrency.limit:
        return (
            f"concurrency.limit is {concurrency.limit}, reached by {run_names(under_way)}: "
            f"{_WHEN_FULL[concurrency.when_full]}"
        )
    if queue.max_running is None:
        return None
    tops = in_cluster(queue.live)
    if len(tops) < queue.max_running:
        return None
    counted = [run for run in queue.live if run.id in tops]
    return (
        f"runs.max_running of the cluster is {queue.max_running}, reached by {run_names(counted)}: "
        "a run that starts now is queued"
    )


def _waiting(queued: QueuedCommand, place: int, view: PipelineView) -> str:
    what = queued.command.type.replace("_", " ")
    asked = f"{what}, asked at {_at(queued.submitted_at)}"
    asked += f" by {queued.submitted_by}" if queued.submitted_by else ""
    behind = f", behind {place} older ones" if place else ""
    if view.leader is None:
        return f"{asked}: it is kept{behind}, and decided once a scheduler leads"
    if (parked := why_parked(view.parked, "command", queued.id)) is not None:
        return f"{asked}: {parked}"
    earlier = queued.command.rerun_of if isinstance(queued.command, StartRun) else None
    if earlier is not None and any(run.id == earlier for run in view.queue.live):
        return f"{asked}: it waits for the end of run {earlier}"
    return f"{asked}: it waits{behind} for the leader, which may have to fetch the release first"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillView:
    """Facts that a backfill's next date depends on."""

    record: PipelineRecord | None
    quarantined: str | None
    """Why its pipeline is quarantined; None: it is not."""
    runs: Collection[ListedRun]
    """Its runs that are not final."""
    leader: str | None
    held: str | None = None
    """The hold that covers the pipeline, as text; None: there is none."""
    parked: Collection[ParkedKey] = ()
    """Keys that the leader has parked."""


def progress(backfill: Backfill) -> str:
    """Its progress, such as `date 17 of 90, 3 under way`."""
    dealt = backfill.started + backfill.skipped
    total = backfill.request.total
    dates = f"date {dealt}" if total is None or backfill.request.as_one_run else f"date {dealt} of {total}"
    return f"{dates}, {backfill.under_way} under way"


def why_backfill(backfill: Backfill, view: BackfillView) -> str | None:
    """What it waits for, and what would end the wait; None: it has ended."""
    if backfill.state.is_over:
        return None
    if backfill.state is BackfillState.PAUSED:
        return f"paused ({backfill.reason}): `nimbus backfill resume {backfill.id}` lets it go on"
    if view.leader is None:
        return "no scheduler leads at the moment; it goes on when one does"
    if (parked := why_parked(view.parked, "backfill", backfill.id)) is not None:
        return parked
    name = backfill.pipeline
    if view.record is not None and view.record.state is PipelineState.PAUSED:
        return f"pipeline {name} is paused: `nimbus pipeline activate {name}` lets it go on"
    if view.quarantined is not None:
        return f"pipeline {name} is quarantined: {view.quarantined}"
    if view.held is not None:
        return f"{view.held}; its next date starts after that"
    if len(view.runs) < backfill.request.max_parallel:
        return _last_dates(backfill)
    queued = sum(run.state is RunState.QUEUED for run in view.runs)
    if not queued:
        return (
            f"max_parallel ({backfill.request.max_parallel}) is reached: the end of one run starts the next"
        )
    limit = None if view.record is None else view.record.profile.concurrency
    full = "runs.max_running" if limit is None else f"the concurrency limit {limit.limit} of {name}"
    return f"{queued} of its {len(view.runs)} runs are queued, and wait for {full}"


def _last_dates(backfill: Backfill) -> str:
    done = backfill.position is not None if backfill.request.as_one_run else not any(dates_left(backfill))
    if done:
        return "all dates are dealt with: it ends with the last of its runs"
    return f"its next date starts as soon as the leader has release {backfill.release[:12]}"
