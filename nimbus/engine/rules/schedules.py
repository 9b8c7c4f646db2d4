"""Schedules: one transaction moves the pipeline's position past a fire time and creates its run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from nimbus.definition.cron import fires_between, next_fire
from nimbus.definition.intervals import interval_of
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipeline import CatchUp, Schedule
from nimbus.domain.run import Run, RunCause
from nimbus.domain.writes import CreateRun
from nimbus.engine.agenda import about_pipeline
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.rules.catalog import put
from nimbus.engine.rules.concurrency import is_skipped, queued_if_full, replaced
from nimbus.engine.rules.due import start_by_data
from nimbus.engine.rules.new_run import build, built
from nimbus.engine.state import Built, State

MISFIRE_GRACE = timedelta(minutes=1)
"""A fire time that is this late, for example after a takeover, is still on time for `catchup: none`."""
SUBMITTED_BY = "schedule"
"""The requester of a scheduled run."""
PREPARED_BEFORE = timedelta(seconds=30)
"""How long before its fire time a run is built, because many may be due in the same second."""
MOST_AT_ONCE = 1000
"""Limit of missed fire times in one step; the rest follow in the next step."""


def fire_schedule(state: State, name: PipelineName, now: datetime) -> Answer:
    """Start the run of a pipeline's first fire time that is due, or what its data make due."""
    record = state.catalog.pipelines.get(name)
    if record is not None and record.profile.starts_by_data:
        return start_by_data(state, record, now)
    if record is None or record.schedule_position is None:
        return Nothing()
    schedule = record.profile.schedule
    if record.state is not PipelineState.ACTIVE or schedule is None or name in state.catalog.quarantined:
        return Nothing()
    subject = about_pipeline(name)
    if subject in state.builds.under_way:
        return Nothing()
    passed = fires_between(schedule, record.schedule_position, now, MOST_AT_ONCE)
    if not passed:
        return _prepared(state, record, schedule, now)
    begun = state.builds.results.get(subject)
    if begun is not None and begun.draft.release != record.release:
        begun = None  # another release has become active since
    return _fired(state, record, _next(schedule, passed, begun, now), now)


class _Step(NamedTuple):
    """The results of passed fire times, oldest first."""

    skipped: tuple[datetime, ...]
    why: str
    due: datetime | None = None
    """The next fire time that starts a run."""


def _next(schedule: Schedule, passed: tuple[datetime, ...], begun: Built | None, now: datetime) -> _Step:
    why = f"missed, and catchup is {schedule.catchup}"
    if begun is not None and not begun.draft.is_early and (due := begun.draft.logical_date) in passed:
        return _Step(passed[: passed.index(due)], why, due)  # it was due when the build began
    if schedule.catchup_window is not None:
        window = max(schedule.catchup_window, MISFIRE_GRACE)
        if too_old := tuple(fire for fire in passed if now - fire > window):
            return _Step(too_old, "missed, and older than catchup_window")
    if schedule.catchup is CatchUp.ALL:
        return _Step((), why, passed[0])
    if len(passed) == MOST_AT_ONCE:
        return _Step(passed[:-1], why)  # the last may be the latest of all: the next step decides
    on_time = schedule.catchup is CatchUp.LATEST or now - passed[-1] <= MISFIRE_GRACE
    return _Step(passed[:-1], why, passed[-1]) if on_time else _Step(passed, why)


def caught_up(schedule: Schedule, position: datetime, now: datetime) -> tuple[tuple[datetime, ...], int]:
    """Which of the first `MOST_AT_ONCE` passed fire times start runs, and how many are skipped.

    This is the leader's own rule, without its other conditions: see `fire_schedule`.
    """
    passed, starting, skipped = fires_between(schedule, position, now, MOST_AT_ONCE), [], 0
    while passed:
        step = _next(schedule, passed, None, now)
        skipped += len(step.skipped)
        passed = passed[len(step.skipped) :]
        if step.due is not None:
            starting.append(step.due)
            passed = passed[1:]
    return tuple(starting), skipped


def _prepared(state: State, record: PipelineRecord, schedule: Schedule, now: datetime) -> Answer:
    """Build the run of the next fire time shortly before it. If that fails, build it again when it is due."""
    due = next_fire(schedule, record.schedule_position or now)
    if due is None or record.release is None or now < due - PREPARED_BEFORE:
        return Nothing(at=None if due is None else due - PREPARED_BEFORE)
    subject, draft = (
        about_pipeline(record.name),
        replace(_draft(record, record.release, due, due), is_early=True),
    )
    if (found := state.builds.results.get(subject)) is not None and found.draft.id == draft.id:
        return Nothing(at=due)
    return build(state, subject, draft)


def _draft(record: PipelineRecord, release: ReleaseDigest, due: datetime, asked_at: datetime) -> Draft:
    schedule = record.profile.schedule
    return Draft(
        # The id is derived from the fire time, so that two leaders cannot start its run twice.
        id=RunId(f"{record.name}-{due:%Y%m%dt%H%M%Sz}"),
        pipeline=record.name,
        release=release,
        parameters={},
        logical_date=due,
        data_interval=None if schedule is None else interval_of(schedule, due),
        cause=RunCause.SCHEDULE,
        asked_at=asked_at,
        submitted_by=SUBMITTED_BY,
        may_exist=record.rewound_from is not None and due <= record.rewound_from,
    )


def _moved(record: PipelineRecord, fires: tuple[datetime, ...], why: str, now: datetime) -> PipelineRecord:
    """The record with its position moved past skipped fire times; unchanged if there are none."""
    if not fires:
        return record
    skips = record.skips.with_fires(fires, why, after=record.schedule_position, now=now)
    return replace(record, schedule_position=fires[-1], skips=skips)


def _fired(state: State, record: PipelineRecord, step: _Step, now: datetime) -> Answer:
    passed_over = _moved(record, step.skipped, step.why, now)
    if step.due is None or record.release is None:
        return _skipped(record, passed_over)
    due = step.due
    if is_skipped(state, record):
        full = _moved(
            passed_over, (due,), "scheduled runs fill concurrency.limit, and when_full is skip", now
        )
        return replace(_skipped(record, full), name="fire_skipped_full")
    draft = _draft(record, record.release, due, now)
    if draft.id in state.runs:  # started by hand under this fire time's id
        return _skipped(record, _moved(passed_over, (due,), f"run {draft.id} exists already", now))
    try:
        run = built(state, about_pipeline(record.name), draft)
    except RefusedError as exc:
        refused = _skipped(record, _moved(passed_over, (due,), f"refused: {exc}", now))
        return replace(refused, name="schedule_refused", about={**refused.about, "error": str(exc)})
    if not isinstance(run, Run):
        return run
    run = queued_if_full(state, run)
    return Decision(
        name="schedule_fired",
        writes=(
            put(replace(passed_over, schedule_position=due), record),
            CreateRun(run),
            *replaced(state, record, run, now),
        ),
        about={
            **_about(record, passed_over),
            "position": due.isoformat(),
            "run": run.id,
            "run_state": run.state,
        },
    )


def _skipped(before: PipelineRecord, record: PipelineRecord) -> Decision:
    return Decision(name="schedule_skipped", writes=(put(record, before),), about=_about(before, record))


def _about(before: PipelineRecord, record: PipelineRecord) -> dict[str, str]:
    """Fields of log lines: how many fire times are skipped, and the newest entry in their list."""
    position = record.schedule_position
    about = {"pipeline": str(record.name), "position": "" if position is None else position.isoformat()}
    if count := record.skips.total - before.skips.total:
        last = record.skips.listed[-1]
        about |= {"skipped": str(count), "since": last.first.isoformat(), "why": last.reason}
    return about
