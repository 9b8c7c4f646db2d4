"""Schedules: one transaction moves the pipeline's position past a fire time and creates its run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from nimbus.definition.cron import fires_between, next_fire
from nimbus.definition.intervals import interval_of
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, Profile
from nimbus.domain.pipelines.pipeline import CatchUp, Schedule
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.writes import CreateRun, PutPipeline
from nimbus.engine.decision import Answer, Decision, NoDecision
from nimbus.engine.rules.due import start_by_data
from nimbus.engine.rules.run_starts import build, built, is_skipped, queued_if_full, replaced
from nimbus.engine.state import Built, State
from nimbus.engine.work_queue import Key

MISFIRE_GRACE = timedelta(minutes=1)
"""A fire time that is this late, for example after a takeover, is still on time for `catchup: none`."""
SUBMITTED_BY = "schedule"
"""The requester of a scheduled run."""
PREPARED_BEFORE = timedelta(seconds=30)
"""How long before its fire time a run is built, because many may be due in the same second."""
MAX_AT_ONCE = 1000
"""Limit of missed fire times in one step; the rest follow in the next step."""


def fire_schedule(state: State, name: PipelineName, now: datetime) -> Answer:
    """Start the run of a pipeline's first fire time that is due, or what its data make due."""
    record = state.catalog.pipelines.get(name)
    if record is None:
        return NoDecision()
    if (profile := record.profile.with_days(state.settings.days_of)) is not record.profile:
        return _followed(record, profile)
    if record.profile.starts_by_data:
        return start_by_data(state, record, now)
    schedules = record.profile.schedules
    if record.state is not PipelineState.ACTIVE or not schedules or not state.catalog.may_start(name):
        return NoDecision()
    key = Key("pipeline", name)
    if key in state.builds.under_way:
        return NoDecision()
    firsts = pending(record)
    if not firsts:
        return NoDecision()
    due, schedule = min(firsts, key=lambda first: first[0])  # at the same time, as they are in the file
    if due > now:
        return _prepared(state, record, schedule, due, now)
    passed = fires_between(schedule, record.position_of(schedule) or now, now, MAX_AT_ONCE)
    begun = state.builds.results.get(key)
    if begun is not None and (begun.draft.release, begun.draft.schedule) != (record.release, schedule.name):
        begun = None  # another release has become active since, or another schedule is first
    return _fired(state, record, schedule, _next(schedule, passed, begun, now), now)


def _followed(record: PipelineRecord, profile: Profile) -> Decision:
    """Copy changed calendars of the cluster into the record, before any fire time is decided by it."""
    return Decision(
        name="calendar_followed",
        writes=(PutPipeline(replace(record, profile=profile), record),),
        about={"pipeline": record.name},
    )


def pending(record: PipelineRecord) -> list[tuple[datetime, Schedule]]:
    """The first fire time of each schedule that is not done, past or future."""
    placed = ((schedule, record.position_of(schedule)) for schedule in record.profile.schedules)
    fires = (
        (next_fire(schedule, position), schedule) for schedule, position in placed if position is not None
    )
    return [(due, schedule) for due, schedule in fires if due is not None]


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
    if len(passed) == MAX_AT_ONCE:
        return _Step(passed[:-1], why)  # the last may be the latest of all: the next step decides
    on_time = schedule.catchup is CatchUp.LATEST or now - passed[-1] <= MISFIRE_GRACE
    return _Step(passed[:-1], why, passed[-1]) if on_time else _Step(passed, why)


def caught_up(schedule: Schedule, position: datetime, now: datetime) -> tuple[tuple[datetime, ...], int]:
    """Which of the first `MAX_AT_ONCE` passed fire times start runs, and how many are skipped.

    This is the leader's own rule, without its other conditions: see `fire_schedule`.
    """
    passed, starting, skipped = fires_between(schedule, position, now, MAX_AT_ONCE), [], 0
    while passed:
        step = _next(schedule, passed, None, now)
        skipped += len(step.skipped)
        passed = passed[len(step.skipped) :]
        if step.due is not None:
            starting.append(step.due)
            passed = passed[1:]
    return tuple(starting), skipped


def _prepared(
    state: State, record: PipelineRecord, schedule: Schedule, due: datetime, now: datetime
) -> Answer:
    """Build the run of the next fire time shortly before it. If that fails, build it again when it is due."""
    if record.release is None or now < due - PREPARED_BEFORE:
        return NoDecision(at=due - PREPARED_BEFORE)
    key = Key("pipeline", record.name)
    draft = replace(_draft(record, schedule, record.release, due, due), is_early=True)
    if (result := state.builds.results.get(key)) is not None and result.draft.id == draft.id:
        return NoDecision(at=due)
    return build(state, key, draft)


def _draft(
    record: PipelineRecord, schedule: Schedule, release: ReleaseDigest, due: datetime, asked_at: datetime
) -> Draft:
    return Draft(
        id=schedule.run_id(record.name, due),
        pipeline=record.name,
        release=release,
        parameters={},  # those of the schedule, which the definition has
        logical_date=due,
        data_interval=interval_of(schedule, due),
        schedule=schedule.name,
        cause=RunCause.SCHEDULE,
        asked_at=asked_at,
        submitted_by=f"{SUBMITTED_BY} {schedule.name}".rstrip(),
        may_exist=record.rewound_from is not None and due <= record.rewound_from,
    )


def _moved(
    record: PipelineRecord, schedule: Schedule, fires: tuple[datetime, ...], why: str, now: datetime
) -> PipelineRecord:
    """The record with a position moved past skipped fire times; unchanged if there are none."""
    if not fires:
        return record
    after = record.position_of(schedule)
    skips = record.skips.with_fires(fires, why, after=after, now=now, schedule=schedule.name)
    return replace(record.moved(schedule, fires[-1]), skips=skips)


def _fired(state: State, record: PipelineRecord, schedule: Schedule, step: _Step, now: datetime) -> Answer:
    passed_over = _moved(record, schedule, step.skipped, step.why, now)
    if step.due is None or record.release is None:
        return _skipped(record, passed_over)
    due = step.due
    if is_skipped(state, record):
        why = "scheduled runs fill concurrency.limit, and when_full is skip"
        full = _moved(passed_over, schedule, (due,), why, now)
        return replace(_skipped(record, full), name="fire_skipped_full")
    draft = _draft(record, schedule, record.release, due, now)
    if draft.id in state.runs:  # started by hand under this fire time's id
        return _skipped(record, _moved(passed_over, schedule, (due,), f"run {draft.id} exists already", now))
    try:
        run = built(state, Key("pipeline", record.name), draft)
    except RefusedError as exc:
        refused = _skipped(record, _moved(passed_over, schedule, (due,), f"refused: {exc}", now))
        return replace(refused, name="schedule_refused", about={**refused.about, "error": str(exc)})
    if not isinstance(run, Run):
        return run
    run = queued_if_full(state, run)
    return Decision(
        name="schedule_fired",
        writes=(
            PutPipeline(passed_over.moved(schedule, due), record),
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
    return Decision(
        name="schedule_skipped", writes=(PutPipeline(record, before),), about=_about(before, record)
    )


def _about(before: PipelineRecord, record: PipelineRecord) -> dict[str, str]:
    """Fields of log lines: how many fire times are skipped, and the newest entry in their list."""
    about = {"pipeline": str(record.name)}
    if count := record.skips.total - before.skips.total:
        last = record.skips.listed[-1]
        about |= {"skipped": str(count), "since": last.first.isoformat(), "why": last.reason}
        about |= {"schedule": last.schedule, "position": last.last.isoformat()}
    return about
