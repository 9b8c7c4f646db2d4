"""Rules of the leader: runs that fire times start, and what a changed schedule fires."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain import writes as w
from nimbus.domain.cluster.settings import MAX_CALENDARS, ClusterCalendar, ClusterSettings
from nimbus.domain.commands import ActivatePipeline, Command, SetCalendar
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.pipeline import CatchUp, Schedule
from nimbus.engine.rules.schedules import MAX_AT_ONCE, PREPARED_BEFORE
from nimbus.engine.state import State
from tests.nimbus.definitions import OnDisk, active
from tests.nimbus.unit.rule_stage import (
    DIGEST,
    NAME,
    NOW,
    RECORD,
    SPEC,
    at,
    build,
    decide,
    decide_once,
    fired_runs,
    known,
    next_decision,
    refusal,
    scheduled,
    submit,
)

HOUR = timedelta(hours=1)


def test_a_fire_time_starts_its_run_and_moves_the_position_in_one_transaction() -> None:
    state = known(record=scheduled(CatchUp.LATEST))
    assert next_decision(state, NOW + timedelta(minutes=59)) is None
    assert state.work.idle_s(at(NOW)) == (HOUR - PREPARED_BEFORE).total_seconds()

    put, created = decide(state, NOW + timedelta(hours=1)).writes

    assert isinstance(put, w.PutPipeline)
    assert isinstance(created, w.CreateRun)
    assert put.record.schedule_position == NOW + timedelta(hours=1)
    assert created.run.id == "p-20260301t130000z"
    assert next_decision(state, NOW + timedelta(hours=1)) is None, "it fires once"


def prepared(catchup: CatchUp = CatchUp.LATEST) -> State:
    """A state in which the run of the next fire time is built, and waits."""
    state = known(record=scheduled(catchup))
    early = NOW + HOUR - PREPARED_BEFORE
    begun = decide_once(state, early)
    assert begun.name == "run_building_started"
    build(state, begun)
    assert next_decision(state, early) is None
    assert state.work.idle_s(at(early)) == PREPARED_BEFORE.total_seconds()
    return state


def test_the_run_of_a_fire_time_is_built_before_it_and_starts_without_another_build() -> None:
    _, created = decide_once(prepared(), NOW + HOUR).writes

    assert isinstance(created, w.CreateRun)
    assert (created.run.created_at, created.run.started_at) == (NOW + HOUR, NOW + HOUR)


def test_a_run_is_built_again_when_a_variable_has_changed_since_it_was_prepared() -> None:
    state = prepared()
    state.put_settings(ClusterSettings(variables={"v": "1"}), at(NOW))

    assert decide_once(state, NOW + HOUR).name == "run_building_started"


def test_a_prepared_run_is_missed_like_any_other_when_its_fire_time_has_passed_long_ago() -> None:
    assert fired_runs(prepared(CatchUp.NONE), NOW + HOUR + timedelta(minutes=2)) == []


def test_missed_fire_times_are_made_up_for_as_the_schedule_says() -> None:
    later = NOW + timedelta(hours=3, minutes=10)

    assert fired_runs(known(record=scheduled(CatchUp.NONE)), later) == []
    assert fired_runs(known(record=scheduled(CatchUp.LATEST)), later) == ["p-20260301t150000z"]
    assert fired_runs(known(record=scheduled(CatchUp.ALL)), later) == [
        "p-20260301t130000z",
        "p-20260301t140000z",
        "p-20260301t150000z",
    ]


@pytest.mark.parametrize(
    ("missed", "run"),
    [
        (MAX_AT_ONCE - 1, "p-20260412t030000z"),
        (MAX_AT_ONCE, "p-20260412t040000z"),
        (MAX_AT_ONCE + 1, "p-20260412t050000z"),
        (2 * MAX_AT_ONCE, "p-20260523t200000z"),
        (2500, "p-20260613t160000z"),
    ],
)
@pytest.mark.parametrize("catchup", [CatchUp.LATEST, CatchUp.NONE])
def test_the_latest_of_very_many_missed_fire_times_starts_one_run(
    catchup: CatchUp, missed: int, run: str
) -> None:
    state = known(record=scheduled(catchup))

    assert fired_runs(state, NOW + timedelta(hours=missed)) == [run]


def test_a_takeover_around_a_fire_time_is_on_time_without_catch_up() -> None:
    state = known(record=scheduled(CatchUp.NONE))

    assert fired_runs(state, NOW + timedelta(hours=1, seconds=40)) == ["p-20260301t130000z"]


def test_a_paused_or_quarantined_pipeline_does_not_fire() -> None:
    later = NOW + timedelta(hours=1)
    paused = known(record=replace(scheduled(CatchUp.ALL), state=PipelineState.PAUSED))
    quarantined = known(record=scheduled(CatchUp.ALL))
    quarantined.catalog.put_quarantine({NAME: "x"})

    assert fired_runs(paused, later) == []
    assert fired_runs(quarantined, later) == []
    quarantined.catalog.put_quarantine({})
    assert fired_runs(quarantined, later) == ["p-20260301t130000z"], "it fires when it is let out"


def test_what_passed_while_paused_is_not_made_up_for_on_resumption() -> None:
    later = NOW + timedelta(hours=5, minutes=1)
    record = replace(scheduled(CatchUp.ALL), state=PipelineState.PAUSED)
    state = known(ActivatePipeline(pipeline=NAME), record=record)
    decide(state, later)
    release = ReleaseOf(NAME, record.published)
    state.commands.release_prepared(release, OnDisk().definition(release))

    assert fired_runs(state, later) == []


def activated(
    schedule: Schedule | None,
    *,
    before: Schedule | None = None,
    position: datetime = NOW,
    now: datetime = NOW,
) -> State:
    """A release with `schedule` was activated instead of one with `before`, which had this position."""
    newer = replace(SPEC, schedule=schedule)
    digest = active(newer).published
    paused = replace(RECORD, state=PipelineState.PAUSED)
    state = known(ActivatePipeline(pipeline=NAME, digest=digest), record=paused)
    decide(state, now)
    state.put_pipeline(active(replace(SPEC, schedule=before), schedule_position=position))
    state.commands.release_prepared(ReleaseOf(NAME, digest), newer)
    assert decide(state, now).name == "command_accepted"
    return state


def test_activation_by_a_leader_whose_clock_is_behind_does_not_fire_again_what_was_fired() -> None:
    fired = NOW + timedelta(minutes=10)
    paused = replace(RECORD, state=PipelineState.PAUSED, schedule_position=fired)
    state = known(ActivatePipeline(pipeline=NAME), record=paused)
    decide(state)
    state.commands.release_prepared(ReleaseOf(NAME, DIGEST), SPEC)

    decide(state)

    assert state.catalog.pipelines[NAME].schedule_position == fired


@pytest.mark.parametrize(
    "before",
    [
        None,
        Schedule(cron="0 0 * * *", timezone="UTC", catchup=CatchUp.ALL),
        Schedule(cron="0 * * * *", timezone="Asia/Kolkata", catchup=CatchUp.ALL),
    ],
    ids=["no schedule", "another cron", "another time zone"],
)
@pytest.mark.parametrize("catchup", list(CatchUp))
def test_activating_a_changed_schedule_fires_nothing_of_the_past(
    before: Schedule | None, catchup: CatchUp
) -> None:
    changed = Schedule(cron="0 * * * *", timezone="UTC", catchup=catchup)
    state = activated(changed, before=before, position=NOW - timedelta(days=180))

    assert state.catalog.pipelines[NAME].schedule_position == NOW
    assert next_decision(state, NOW) is None
    assert fired_runs(state, NOW + timedelta(hours=1)) == ["p-20260301t130000z"]


def test_activating_a_release_with_the_same_times_keeps_the_missed_fire_times() -> None:
    """Only `catchup` changes: a user who sets it to `all` while fire times are missed wants them."""
    before = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.LATEST)
    later = NOW + timedelta(hours=2, minutes=5)
    state = activated(replace(before, catchup=CatchUp.ALL), before=before, now=later)

    assert fired_runs(state, later) == [
        "p-20260301t130000z",
        "p-20260301t140000z",
    ]


EVERY = Schedule(name="every", cron="0 * * * *", timezone="UTC", catchup=CatchUp.ALL)
TWICE = Schedule(name="twice", cron="0 12,14 * * *", timezone="UTC", parameters={"month": 3})


def of_several(*schedules: Schedule, position: datetime = NOW) -> PipelineRecord:
    spec = replace(SPEC, schedule=schedules[0], more_schedules=schedules[1:])
    return active(spec, schedule_position=position, updated_at=NOW)


def test_schedules_that_fire_together_start_one_run_each_with_their_parameters() -> None:
    state = known(record=of_several(EVERY, TWICE))

    assert fired_runs(state, NOW + 2 * HOUR) == [
        "p-20260301t130000z-every",
        "p-20260301t140000z-every",
        "p-20260301t140000z-twice",
    ]
    runs = [state.runs.live[run] for run in sorted(state.runs.live)]
    assert [(run.parameters["month"], run.submitted_by) for run in runs] == [
        (1, "schedule every"),
        (1, "schedule every"),
        (3, "schedule twice"),
    ]
    assert state.catalog.pipelines[NAME].positions == {"every": NOW + 2 * HOUR, "twice": NOW + 2 * HOUR}


def test_each_schedule_catches_up_by_its_own_rule() -> None:
    none = replace(TWICE, name="none", cron="30 * * * *", catchup=CatchUp.NONE)
    state = known(record=of_several(TWICE, EVERY, none, position=NOW - 3 * HOUR))

    assert fired_runs(state, NOW + 2 * HOUR + timedelta(minutes=2)) == [
        *(f"p-20260301t{hour}0000z-every" for hour in range(10, 15)),
        "p-20260301t140000z-twice",
    ]
    skips = state.catalog.pipelines[NAME].skips
    assert [(one.schedule, one.count) for one in skips.listed] == [("none", 5), ("twice", 1)]


def test_activation_keeps_the_position_of_a_schedule_by_its_name() -> None:
    later = NOW + HOUR + timedelta(minutes=5)
    newer = replace(SPEC, schedule=replace(TWICE, cron="30 * * * *"), more_schedules=(EVERY,))
    digest = active(newer).published
    paused = replace(RECORD, state=PipelineState.PAUSED)
    state = known(ActivatePipeline(pipeline=NAME, digest=digest), record=paused)
    decide(state, later)
    before = replace(of_several(EVERY, TWICE), positions={"every": NOW, "twice": NOW})
    state.put_pipeline(before)
    state.commands.release_prepared(ReleaseOf(NAME, digest), newer)

    assert decide(state, later).name == "command_accepted"

    assert state.catalog.pipelines[NAME].positions == {"every": NOW, "twice": later}
    assert fired_runs(state, later) == ["p-20260301t130000z-every"], "as the changed one starts anew"


FRIDAY = datetime(2026, 2, 27, 12, tzinfo=UTC)
WORKDAYS, EVERY_DAY = Calendar(), Calendar(weekdays=(0, 1, 2, 3, 4, 5, 6))
FOLLOWING = Schedule(cron="0 13 * * *", timezone="UTC", calendar="work", catchup=CatchUp.ALL)


def following(*commands: Command, days: Calendar | None = WORKDAYS) -> State:
    """A pipeline follows the calendar `work` of the cluster since Friday; it has these days."""
    record = active(replace(SPEC, schedule=FOLLOWING), schedule_position=FRIDAY, updated_at=FRIDAY)
    state = known(*commands, record=record)
    if days is not None:
        one = ClusterCalendar(days=days, set_at=FRIDAY)
        state.put_settings(ClusterSettings(calendars={"work": one}), at(NOW))
    return state


def test_a_calendar_that_is_set_decides_about_each_fire_time_that_is_not_done() -> None:
    """1 March is a Sunday: with the first calendar, only Friday's fire time has passed."""
    state = following(SetCalendar(name="work", days=EVERY_DAY))
    assert fired_runs(following(), NOW + 2 * HOUR) == ["p-20260227t130000z"]

    assert fired_runs(state, NOW + 2 * HOUR) == [
        "p-20260227t130000z",
        "p-20260228t130000z",
        "p-20260301t130000z",
    ]
    schedule = state.catalog.pipelines[NAME].profile.schedule
    assert schedule is not None
    assert schedule.days == EVERY_DAY


def test_a_calendar_that_is_changed_wakes_the_pipelines_that_follow_it() -> None:
    state = following()
    fired_runs(state, NOW + HOUR)
    submit(state, SetCalendar(name="work", days=EVERY_DAY))

    assert decide(state, NOW + HOUR).name == "command_accepted"
    assert decide(state, NOW + HOUR).name == "calendar_followed"
    assert "p-20260301t130000z" in fired_runs(state, NOW + HOUR)


def test_a_paused_pipeline_follows_its_calendar_too() -> None:
    state = following()
    state.put_pipeline(replace(state.catalog.pipelines[NAME], state=PipelineState.PAUSED))

    assert decide(state).name == "calendar_followed"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (SetCalendar(name="work", days=None), "calendar_in_use"),
        (SetCalendar(name="other", days=None), "unknown_calendar"),
    ],
)
def test_a_calendar_that_is_followed_or_unknown_is_not_removed(command: SetCalendar, code: str) -> None:
    assert refusal(following(command)) == code


def test_there_are_not_more_calendars_than_the_record_of_settings_can_hold() -> None:
    one = ClusterCalendar(days=WORKDAYS, set_at=NOW)
    state = known(SetCalendar(name="one-more", days=WORKDAYS))
    calendars = {f"c{number}": one for number in range(MAX_CALENDARS)}
    state.put_settings(ClusterSettings(calendars=calendars), at(NOW))

    assert refusal(state) == "too_many_calendars"


def test_a_release_with_an_unknown_calendar_is_refused() -> None:
    newer = replace(SPEC, schedule=FOLLOWING)
    digest = active(newer).published
    state = known(ActivatePipeline(pipeline=NAME, digest=digest))
    decide(state)
    state.commands.release_prepared(ReleaseOf(NAME, digest), newer)

    assert refusal(state) == "unknown_calendar"


def test_an_activated_release_has_the_days_of_the_clusters_calendar() -> None:
    newer = replace(SPEC, schedule=FOLLOWING)
    digest = active(newer).published
    state = following(ActivatePipeline(pipeline=NAME, digest=digest), days=EVERY_DAY)
    decide(state)
    state.commands.release_prepared(ReleaseOf(NAME, digest), newer)
    while decide(state).name != "command_accepted":
        pass

    schedule = state.catalog.pipelines[NAME].profile.schedule
    assert schedule is not None
    assert (schedule.days, schedule.of_release) == (EVERY_DAY, False)
