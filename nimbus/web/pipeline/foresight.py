"""What comes next: fire times, and previews of the actions on pages, by the leader's rules. Pure.

Fire times are computed from a pipeline's position, which does not change between two fires. So the result of
`next_fire` stays the same for many calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice

from nimbus.api.explain.queue import QueueView
from nimbus.api.explain.task import ClusterFacts
from nimbus.definition.backfill_dates import dates_left
from nimbus.definition.cron import fires_after, next_fire
from nimbus.domain.pipelines.backfill import Backfill, BackfillState
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.runs.run import ListedRun, RunState
from nimbus.domain.starts.places import in_cluster, in_pipeline
from nimbus.domain.wording import counted
from nimbus.engine.rules.schedules import MAX_AT_ONCE, caught_up, pending


def due(record: PipelineRecord) -> datetime | None:
    """The first unhandled fire time, past or future; None: its schedule does not fire."""
    return min((at for at, _ in pending(record)), default=None) if record.is_scheduled else None


def upcoming(record: PipelineRecord, now: datetime) -> datetime | None:
    """The next fire time."""
    return _next(record, now) if record.is_scheduled else None


def _next(record: PipelineRecord, now: datetime) -> datetime | None:
    nexts = (next_fire(schedule, record.fires_after(schedule, now)) for schedule in record.profile.schedules)
    return min(filter(None, nexts), default=None)


def following(record: PipelineRecord, now: datetime, count: int) -> list[datetime]:
    """The next fire times of one pipeline."""
    if not record.is_scheduled:
        return []
    fires = (
        fires_after(schedule, record.fires_after(schedule, now)) for schedule in record.profile.schedules
    )
    return list(islice(merge(*fires), count))


_NAMED = 5


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The preview of one action."""

    action: str
    sentences: tuple[str, ...]


def foresee(record: PipelineRecord, queue: QueueView, facts: ClusterFacts) -> list[Foreseen]:
    """Previews of the actions that the page offers now."""
    live = sum(run.pipeline == record.name for run in queue.live)
    lines = [Foreseen("Start", tuple(_start(record, queue, facts)))] if record.release else []
    if record.state is PipelineState.ACTIVE:
        lines.append(Foreseen("Pause", (_pause(record, live),)))
        if late := tuple(_late(record, facts.now)):
            lines.append(Foreseen("The schedule", late))
    if record.state is PipelineState.PAUSED:
        lines.append(Foreseen("Resume", tuple(_resume(record, facts.now))))
    return lines


def _start(record: PipelineRecord, queue: QueueView, facts: ClusterFacts) -> Iterator[str]:
    yield f"One run of release {(record.release or '')[:12]}, with {counted(record.profile.tasks, 'task')}."
    under_way = sum(in_pipeline(run) for run in queue.live if run.pipeline == record.name)
    if queue.limit is not None and under_way >= queue.limit:
        yield f"Runs under way: {under_way} of at most {queue.limit}. It is queued until one ends."
    if queue.max_running is not None and (of_all := len(in_cluster(queue.live))) >= queue.max_running:
        yield f"Runs of all pipelines under way: {of_all}, as many as may be. It is queued until one ends."
    capacity = facts.capacity()
    workers = [worker for worker in capacity.workers if not worker.draining]
    slots = sum(worker.slots for worker in workers)
    free = max(0, slots - sum(capacity.busy(worker.id) for worker in workers))
    yield f"{free} of {slots} slots are free" + ("." if free else ": its tasks wait for one.")
    if facts.leader is None:
        yield "No scheduler leads: it begins when one does."


def _pause(record: PipelineRecord, live: int) -> str:
    what = "It has no schedule, so nothing changes"
    if record.profile.starts_by_data:
        what = "Changes of its data start no run; they are kept, and start runs after the pause"
    elif record.profile.schedule is not None:
        what = "Its schedule starts no run, and fire times in the pause get no runs"
    return f"{what}; runs that are live go on: {live}."


def _resume(record: PipelineRecord, now: datetime) -> Iterator[str]:
    schedule = record.profile.schedule
    if record.profile.starts_by_data:
        yield "What has changed in the pause starts its runs now, as far as it is complete."
        return
    if schedule is None:
        yield "It has no schedule: runs are started by hand."
        return
    yield "Fire times that passed while it was paused start no run."
    if (fire := _next(record, now)) is not None:
        yield f"The next run is that of {fire:%Y-%m-%d %H:%M}Z."


def _late(record: PipelineRecord, now: datetime) -> Iterator[str]:
    """Preview of fire times that have passed and are not handled yet."""
    for schedule in () if record.profile.starts_by_data else record.profile.schedules:
        if (position := record.position_of(schedule)) is not None:
            yield from _late_of(schedule, position, now)


def _late_of(schedule: Schedule, position: datetime, now: datetime) -> Iterator[str]:
    starting, skipped = caught_up(schedule, position, now)
    more = "or more" if len(starting) + skipped >= MAX_AT_ONCE else ""
    if starting:
        named = ", ".join(f"{fire:%Y-%m-%d %H:%M}Z" for fire in starting[:_NAMED])
        others = f" and {counted(len(starting) - _NAMED, 'other')}" if len(starting) > _NAMED else ""
        runs = counted(len(starting), f"{more} run".strip())
        which = f"{schedule.name} {schedule.catchup}".lstrip()
        yield f"Catch-up ({which}) starts {runs}: {named}{others}."
    if skipped:
        yield f"Missed fire times that start none: {f'{skipped} {more}'.rstrip()}."


def foresee_backfill(backfill: Backfill, runs: Iterable[ListedRun]) -> list[Foreseen]:
    """Previews of the actions on a backfill's page. `runs`: runs of all pipelines."""
    if backfill.state.is_over:
        return []
    live = [run for run in runs if run.backfill == backfill.id and not run.state.is_final]
    queued = sum(run.state is RunState.QUEUED for run in live)
    go_on = f"Runs under way go on: {len(live) - queued}."
    cancel = f"It starts no more runs, and cannot be resumed. Queued runs are stopped: {queued}. {go_on}"
    if backfill.state is BackfillState.ACTIVE:
        pause = f"It starts no more runs until it is resumed. Runs that are live go on: {len(live)}."
        return [Foreseen("Pause", (pause,)), Foreseen("Cancel", (cancel,))]
    return [Foreseen("Resume", tuple(_resumed(backfill, len(live)))), Foreseen("Cancel", (cancel,))]


def _resumed(backfill: Backfill, live: int) -> Iterator[str]:
    most = backfill.request.max_parallel
    if backfill.request.as_one_run:
        yield "It starts its run." if backfill.position is None else "Its only run was started: it ends."
        return
    date = next(dates_left(backfill), None)
    if date is None:
        yield "All dates are dealt with: it ends with the last of its runs."
        return
    at_once = counted(max(0, most - live), "run")
    yield f"It goes on with {date:%Y-%m-%d %H:%M}Z, and starts at most {at_once} at once."
    yield "Runs that failed are not repeated: for these dates, create a backfill with --reprocess failed."
