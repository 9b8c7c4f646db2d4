"""Rules of the leader, one case each. Laws for every order of events are in tests/nimbus/property."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.attempts.workers import WorkerInfo, jvm_release
from nimbus.domain.cluster import schema
from nimbus.domain.commands import (
    Abdicate,
    ActivatePipeline,
    Command,
    PausePipeline,
    PublishRelease,
    RemovePipeline,
    StartRun,
    StopRun,
)
from nimbus.domain.ids import AttemptId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    Priority,
    Schedule,
    SparkMode,
    SparkPlace,
    SparkReuse,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import (
    ArchiveRun,
    BuildRun,
    Decision,
    NoDecision,
    PrepareRelease,
    Refusal,
    ResignLeadership,
)
from nimbus.engine.rules import run_starts
from nimbus.engine.rules.run_ends import retire_run
from nimbus.engine.state import Built, State
from nimbus.engine.work_queue import Key
from nimbus.records import OUTCOME, RUN
from tests.nimbus.definitions import active, digest_of
from tests.nimbus.unit.rule_stage import (
    DIGEST,
    NAME,
    NEWER,
    NOW,
    RECORD,
    SPEC,
    START,
    a_worker,
    at,
    build,
    decide,
    decide_once,
    fired_runs,
    known,
    next_decision,
    refusal,
    submit,
)


def test_a_run_starts_in_the_transaction_that_consumes_its_command() -> None:
    state = known(START)

    created, consumed = decide(state).writes

    assert isinstance(created, w.CreateRun)
    assert isinstance(consumed, w.ConsumeCommand)
    assert consumed.outcome.accepted
    assert created.run.release == DIGEST
    assert created.run.tasks[TaskName("a")].spec.args == ("2",)
    assert state.commands.waiting == {}


def test_outcome_of_a_start_names_its_run_also_when_it_is_refused() -> None:
    consumed = [decide(known(START, record=record)).writes[-1] for record in (RECORD, None)]

    assert [isinstance(write, w.ConsumeCommand) and write.outcome.run_id for write in consumed] == ["p-1"] * 2


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (START, {"run": "p-1"}),
        (StopRun(run_id=RunId("p-9"), reason="x"), {"run": "p-9"}),
        (PausePipeline(pipeline=NAME), {}),
    ],
)
def test_outcome_says_what_its_command_names(command: Command, names: dict[str, str]) -> None:
    consumed = decide(known(command)).writes[-1]

    assert isinstance(consumed, w.ConsumeCommand)
    assert consumed.outcome.names == names
    assert OUTCOME.decode(OUTCOME.encode(consumed.outcome), "outcome") == consumed.outcome


def test_outcome_of_an_activation_names_the_release_that_is_active_from_then_on() -> None:
    state = known(ActivatePipeline(pipeline=NAME))
    decide(state)
    state.commands.release_prepared(ReleaseOf(NAME, DIGEST), SPEC)

    consumed = decide(state).writes[-1]

    assert isinstance(consumed, w.ConsumeCommand)
    assert consumed.outcome.names == {"release": DIGEST}


def test_asking_twice_starts_one_run() -> None:
    state = known(START, START)
    decide(state)
    again = decide(state)

    assert [type(write) for write in again.writes] == [w.ConsumeCommand]
    assert list(state.runs.live) == ["p-1"]


@pytest.mark.parametrize(
    ("command", "record", "code"),
    [
        (START, None, "unknown_pipeline"),
        (START, replace(RECORD, release=None), "not_active"),
        (replace(START, parameters={"month": 13}), RECORD, "invalid_parameters"),
        (replace(START, parameters={"mouth": 1}), RECORD, "invalid_parameters"),
        (StopRun(run_id=RunId("nope"), reason="test"), RECORD, "unknown_run"),
        (PausePipeline(pipeline=PipelineName("q")), RECORD, "unknown_pipeline"),
        (PausePipeline(pipeline=NAME), replace(RECORD, state=PipelineState.INACTIVE), "not_active"),
        (RemovePipeline(pipeline=PipelineName("q")), RECORD, "unknown_pipeline"),
        (ActivatePipeline(pipeline=PipelineName("q")), RECORD, "unknown_pipeline"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_code_and_changes_nothing(
    command: Command, record: PipelineRecord | None, code: str
) -> None:
    assert refusal(known(command, record=record)) == code


def test_a_run_of_a_quarantined_pipeline_is_refused() -> None:
    state = known(START)
    state.catalog.put_quarantine({NAME: "x.py is nowhere"})

    assert refusal(state) == "quarantined"


def test_a_pipeline_with_live_runs_cannot_be_removed() -> None:
    state = known(START)
    decide(state)

    assert refusal(submit(state, RemovePipeline(pipeline=NAME))) == "pipeline_in_use"


def test_a_release_becomes_known_only_once_it_is_on_the_leaders_disk() -> None:
    release = ReleaseOf(NAME, NEWER)
    state = known(PublishRelease(pipeline=NAME, digest=NEWER, activate=True))
    asked = decide(state)
    assert (asked.effects, asked.writes) == ((PrepareRelease(release),), ())
    assert next_decision(state) is None, "it waits for the disk"

    state.commands.release_prepared(release, SPEC)
    put, consumed = decide(state).writes

    assert isinstance(put, w.PutPipeline)
    assert (put.record.release, put.record.published) == (NEWER, NEWER)
    assert isinstance(consumed, w.ConsumeCommand)


def test_a_release_that_cannot_be_had_is_refused_and_the_old_one_stays() -> None:
    state = known(PublishRelease(pipeline=NAME, digest=NEWER, activate=True))
    decide(state)
    state.commands.release_prepared(ReleaseOf(NAME, NEWER), Refusal("release_absent", "not in storage"))

    assert refusal(state) == "release_absent"
    assert state.catalog.pipelines[NAME] == RECORD


def test_a_preparation_serves_one_command_and_the_next_one_asks_the_disk_again() -> None:
    publish = PublishRelease(pipeline=NAME, digest=NEWER, activate=True)
    state = known(publish, publish)
    decide(state)
    state.commands.release_prepared(ReleaseOf(NAME, NEWER), SPEC)
    decide(state)

    assert decide(state).effects == (PrepareRelease(ReleaseOf(NAME, NEWER)),)


def test_a_command_that_waits_holds_back_its_own_pipeline_and_no_other() -> None:
    other = PipelineName("q")
    state = known(PublishRelease(pipeline=NAME, digest=NEWER), START, PausePipeline(pipeline=other))
    state.put_pipeline(replace(RECORD, name=other))

    decide(state)
    decide(state)

    assert state.catalog.pipelines[other].state is PipelineState.PAUSED
    assert next_decision(state) is None
    assert [queued.command for queued in state.commands.waiting.values()][-1] == START


def test_an_abdication_is_consumed_before_leadership_is_given_up() -> None:
    state = known(Abdicate(reason="upgrade"))
    accepted = decide(state)
    resigning = decide(state)

    assert [type(write) for write in accepted.writes] == [w.PutAbdication, w.ConsumeCommand]
    assert (accepted.effects, resigning.writes) == ((), ())
    assert resigning.effects == (ResignLeadership("upgrade"),)
    assert next_decision(state) is None


def test_a_decision_with_writes_and_effects_is_refused() -> None:
    with pytest.raises(ValueError, match="lost reply"):
        Decision(name="both", writes=(w.RemoveRun(RunId("p-1")),), effects=(ResignLeadership("test"),))


def test_the_intent_is_written_with_the_order_and_the_place_of_its_slots() -> None:
    state = known(START, workers=(a_worker("w1"),))
    decide(state)
    put, created, assigned = decide(state).writes

    assert isinstance(put, w.PutRun)
    assert isinstance(created, w.CreateAttempt)
    assert isinstance(assigned, w.Assign)
    assert str(created.attempt) == assigned.assignment.attempt == "p-1.a.1"
    assert put.run.tasks[TaskName("a")].attempts[0].opened_by_epoch == 3


@pytest.mark.parametrize(
    ("workers", "chosen"),
    [
        ((a_worker("w1"), a_worker("w2", slots=2)), "w2"),
        ((a_worker("w1", load=3.0), a_worker("w2", load=1.0)), "w2"),
        ((a_worker("w1", draining=True), a_worker("w2")), "w2"),
    ],
)
def test_the_freest_worker_is_chosen(workers: tuple[WorkerInfo, ...], chosen: str) -> None:
    state = known(START, workers=workers)
    decide(state)

    assert decide(state).about["worker"] == chosen


@pytest.mark.parametrize(
    ("task", "worker", "chosen"),
    [
        ({}, {}, "keeps"),
        ({}, {"slots": 1}, "idle"),
        ({}, {"draining": True}, "idle"),
        ({}, {"jvm_releases": ("p/other",)}, "idle"),
        ({"kind": TaskKind.PYTHON}, {}, "idle"),
        ({"spark_reuse": SparkReuse.OFF}, {}, "idle"),
        ({"spark_mode": SparkMode.CONNECT}, {}, "idle"),
        ({"spark_place": SparkPlace(target="big")}, {}, "idle"),
        ({"environment": "old"}, {}, "idle"),
    ],
)
def test_of_equally_free_workers_one_that_keeps_a_jvm_of_the_release_is_chosen(
    task: dict[str, Any], worker: dict[str, Any], chosen: str
) -> None:
    spec = TaskSpec(**{"name": TaskName("a"), "kind": TaskKind.PYSPARK, "script": "a.py", **task})
    spec_of_all = replace(SPEC, tasks=(spec,))
    idle = replace(a_worker("idle", slots=2), labels=("environment:old",), targets={"big": 9})
    keeps = replace(idle, id=WorkerId("keeps"), load_average=3.0)
    keeps = replace(keeps, **{"jvm_releases": (jvm_release(NAME, digest_of(spec_of_all)),), **worker})
    state = known(START, workers=(idle, keeps), record=active(spec_of_all))
    decide(state)

    assert decide(state).about["worker"] == chosen


def test_nothing_is_opened_while_no_slot_is_free() -> None:
    state = known(START, workers=(a_worker("w1", draining=True),))
    decide(state)
    assert next_decision(state) is None

    state.put_workers([a_worker("w1")], at(NOW))
    assert decide(state).about["attempt"] == "p-1.a.1"


def test_a_ready_task_opens_when_a_more_urgent_one_has_no_worker_that_can_run_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "NEEDED", {"env": 2})
    spec = replace(SPEC, tasks=tuple(replace(task, needs=()) for task in SPEC.tasks))
    newer = replace(spec.tasks[0], env={"A": "b"})
    spec = replace(spec, tasks=(newer, *spec.tasks[1:]))
    state = known(START, workers=(a_worker("older"),), record=active(spec))
    decide(state)

    assert decide(state).about["attempt"] == "p-1.b.1"

    state.put_workers([a_worker("older"), replace(a_worker("newer"), newest_schema=2)], at(NOW))
    assert decide(state).about == {"attempt": "p-1.a.1", "worker": "newer"}


def test_no_more_attempts_of_a_target_are_open_than_it_has_slots() -> None:
    big = SparkPlace(target="big")
    names = [TaskName(name) for name in "abc"]
    at_big = TaskSpec(name=names[0], kind=TaskKind.PYSPARK, script="a.py", spark_place=big)
    spec = replace(SPEC, tasks=tuple(replace(at_big, name=name) for name in names))
    bare = a_worker("w1", slots=9)
    first, second = (replace(a_worker(w, slots=1), targets={"big": 2}) for w in ("w2", "w3"))
    third = replace(second, id=WorkerId("w4"))
    state = known(START, workers=(bare,), record=active(spec))
    decide(state)
    assert next_decision(state) is None

    state.put_workers([bare, first, second, third], at(NOW))
    opened = [decide(state), decide(state)]
    assert [one.about["attempt"] for one in opened] == ["p-1.a.1", "p-1.b.1"]
    assert {one.about["worker"] for one in opened} == {"w2", "w3"}
    assert next_decision(state) is None

    state.put_workers([third], at(NOW))  # attempts of the others may still exist
    assert next_decision(state) is None
    run = state.runs.live[RunId("p-1")]
    end = End(attempt="p-1.a.1", outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW)
    state.attempts.put_slots(AttemptId(run.id, names[0], 1), Slots(end=end), at(NOW))
    decide(state)
    assert decide(state).about == {"attempt": "p-1.c.1", "worker": "w4"}


def test_release_that_the_clusters_schema_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "NEEDED", {"env": 2})
    newer = replace(SPEC, tasks=(replace(SPEC.tasks[0], env={"A": "b"}),))
    for known_schema in (1, 2):
        state = known(PublishRelease(pipeline=NAME, digest=NEWER), record=None)
        state.leadership.schema = known_schema
        decide(state)
        state.commands.release_prepared(ReleaseOf(NAME, NEWER), newer)

        (consumed,) = (write for write in decide(state).writes if isinstance(write, w.ConsumeCommand))
        assert consumed.outcome.accepted is (known_schema == 2)
        if known_schema == 1:
            assert consumed.outcome.code == "schema_too_old"
            assert "task a needs schema 2, and the cluster's is 1" in consumed.outcome.message


def test_the_more_urgent_run_goes_first() -> None:
    urgent = StartRun(pipeline=NAME, run_id=RunId("p-2"), priority=Priority.HIGHEST)
    state = known(START, urgent, workers=(a_worker("w1"),))
    decide(state)
    decide(state)

    assert decide(state).about["attempt"] == "p-2.a.1"


def test_an_overdue_run_fails_and_says_when_it_was_due() -> None:
    state = known(START, record=active(replace(SPEC, timeout=timedelta(minutes=5))))
    decide(state)
    assert next_decision(state, NOW + timedelta(minutes=4)) is None
    assert state.work.idle_s(at(NOW)) == 300

    (put,) = decide(state, NOW + timedelta(minutes=5)).writes

    assert isinstance(put, w.PutRun)
    assert put.run.state is RunState.FAILED
    assert "12:05:00" in put.run.reason


def test_a_stopping_run_fences_what_was_not_claimed() -> None:
    state = known(START, workers=(a_worker("w1"),))
    decide(state)
    decide(state)
    decide(submit(state, StopRun(run_id=RunId("p-1"), reason="test")))

    fenced = decide(state)

    assert [type(write) for write in fenced.writes] == [w.WriteClaim, w.WriteEnd, w.PutRun, w.Unassign]
    assert fenced.may_lose, "a driver may claim at any time: nothing else is refused with it"
    assert state.runs.live == {}
    assert RunId("p-1") in state.runs.finished


def test_a_finished_run_goes_to_history_and_leaves_zookeeper_later() -> None:
    state = known(START)
    (created, _) = decide(state).writes
    assert isinstance(created, w.CreateRun)
    state.runs.put(replace(created.run, state=RunState.SUCCEEDED, finished_at=NOW), at(NOW))
    assert state.runs.live == {}, "it leaves memory at once"
    assert decide(state).effects == (ArchiveRun(RunId("p-1")),)
    assert next_decision(state, NOW + timedelta(days=1)) is None, "not before history has it"

    state.runs.archived(RunId("p-1"))
    assert next_decision(state, NOW + timedelta(minutes=59)) is None
    dropped = decide(state, NOW + timedelta(hours=1))
    assert dropped.writes[-1] == w.RemoveRun(RunId("p-1"))
    assert state.runs.finished == {}


@pytest.mark.parametrize("parked", [False, True])
def test_a_finished_run_stays_while_the_same_start_waits_so_that_nothing_is_started_twice(
    *, parked: bool
) -> None:
    state, late = known(START), NOW + timedelta(days=1)
    (created, _) = decide(state).writes
    assert isinstance(created, w.CreateRun)
    state.runs.put(replace(created.run, state=RunState.SUCCEEDED, finished_at=NOW), at(NOW))
    decide(state)
    state.runs.archived(RunId("p-1"))
    again = submit(state, START).commands.waiting
    (key,) = (Key("command", command) for command in again)
    if parked:
        state.park(key, "test")

    assert isinstance(retire_run(state, RunId("p-1"), late), NoDecision)

    if parked:
        state.work.parked.clear()
        state.commands.line_up(key.command)
    (answered,) = decide(state, late).writes
    assert isinstance(answered, w.ConsumeCommand)
    assert "was started before" in answered.outcome.message
    assert decide(state, late).writes[-1] == w.RemoveRun(RunId("p-1"))


DATES = TaskSpec(
    name=TaskName("a"),
    kind=TaskKind.PYTHON,
    script="a.py",
    args=(
        "{{ ds }} {{ ds_nodash }}",
        "{{ run.logical_date }}",
        "{{ run.logical_date.strftime('%d.%m.%Y') }}",
    ),
)


def berlin(*commands: Command, position: datetime) -> State:
    schedule = Schedule(cron="30 0 * * *", timezone="Europe/Berlin")
    spec = replace(SPEC, parameters={}, schedule=schedule, tasks=(DATES,))
    return known(*commands, record=active(spec, schedule_position=position))


def started(state: State) -> Run:
    decide(state)
    return state.runs.live[RunId("p-1")]


@pytest.mark.parametrize(
    ("before", "utc", "date", "nodash", "local", "german"),
    [
        (NOW, "p-20260301t233000z", "2026-03-02", "20260302", "2026-03-02 00:30:00+01:00", "02.03.2026"),
        (
            NOW + timedelta(days=30),
            "p-20260331t223000z",
            "2026-04-01",
            "20260401",
            "2026-04-01 00:30:00+02:00",
            "01.04.2026",
        ),
    ],
    ids=["winter time", "summer time"],
)
def test_dates_of_a_scheduled_run_are_those_of_its_schedules_time_zone(
    before: datetime, utc: str, date: str, nodash: str, local: str, german: str
) -> None:
    state = berlin(position=before)
    decide(state, before + timedelta(days=1))

    run = state.runs.live[RunId(utc)]
    assert run.tasks[TaskName("a")].spec.args == (f"{date} {nodash}", local, german)
    assert run.logical_date.isoformat(" ") == local


def test_dates_of_a_run_started_by_hand_are_those_of_its_pipelines_time_zone() -> None:
    start = StartRun(
        pipeline=NAME, run_id=RunId("p-1"), logical_date=datetime(2026, 1, 31, 23, 15, tzinfo=UTC)
    )

    local = started(berlin(start, position=NOW))
    in_utc = started(known(start, record=active(replace(SPEC, parameters={}, tasks=(DATES,)))))

    assert local.tasks[TaskName("a")].spec.args[:2] == ("2026-02-01 20260201", "2026-02-01 00:15:00+01:00")
    assert in_utc.tasks[TaskName("a")].spec.args[:2] == ("2026-01-31 20260131", "2026-01-31 23:15:00+00:00")


@pytest.mark.parametrize(
    ("utc", "local"),
    [
        (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "2026-10-25T02:30:00+02:00"),  # the repeated hour
        (datetime(1850, 1, 1, tzinfo=UTC), "1850-01-01T00:53:00+00:53"),  # an offset of 53 min 28 s
    ],
)
def test_a_local_date_is_the_same_in_a_record_that_was_written_and_read(utc: datetime, local: str) -> None:
    start = StartRun(pipeline=NAME, run_id=RunId("p-1"), logical_date=utc)
    run = started(berlin(start, position=NOW))

    read = RUN.decode(RUN.encode(run), "p-1")

    assert read == run
    assert read.logical_date == utc
    assert read.logical_date.isoformat() == run.logical_date.isoformat() == local


def test_a_run_by_hand_stands_for_the_end_of_its_interval_as_a_scheduled_one_does() -> None:
    interval = DataInterval(start=NOW - timedelta(days=9), end=NOW - timedelta(days=8))
    start = StartRun(pipeline=NAME, run_id=RunId("p-1"), data_interval=interval)

    assert started(known(start)).logical_date == interval.end
    assert started(known(replace(start, logical_date=NOW - timedelta(days=1)))).logical_date < NOW
    assert started(known(replace(start, data_interval=None))).logical_date == NOW


def test_a_logical_date_without_a_local_date_is_refused() -> None:
    last = StartRun(pipeline=NAME, run_id=RunId("p-1"), logical_date=datetime.max.replace(tzinfo=UTC))

    assert refusal(berlin(last, position=NOW)) == "invalid_parameters"


BAD = replace(DATES, args=("{{ params.nothing }}",))


def with_arguments(*tasks: TaskSpec, schedule: Schedule | None = None) -> PipelineRecord:
    spec = replace(SPEC, parameters={}, schedule=schedule, tasks=tasks)
    return active(spec, schedule_position=NOW)


def test_a_command_waits_for_its_runs_arguments_and_holds_back_no_other_pipeline() -> None:
    other = PipelineName("q")
    start, again = (StartRun(pipeline=NAME, run_id=RunId(name)) for name in ("p-1", "p-2"))
    stop = StopRun(run_id=RunId("p-1"), reason="test")
    state = known(start, stop, again, PausePipeline(pipeline=other), record=with_arguments(DATES))
    state.put_pipeline(replace(RECORD, name=other))

    decide_once(state)
    assert state.catalog.pipelines[other].state is PipelineState.PAUSED
    asked = decide_once(state)

    assert isinstance(asked.effects[0], BuildRun)
    assert (asked.writes, asked.effects[0].draft.id) == ((), "p-1")
    assert next_decision(state) is None, "the later ones about the run and its pipeline wait"
    build(state, asked)
    decide_once(state)
    assert list(state.runs.live) == ["p-1"]
    assert state.builds.results == {}
    both = (*decide_once(state).writes, *decide_once(state).writes)
    (put,) = (write for write in both if isinstance(write, w.PutRun))
    assert put.run.state is RunState.STOPPED


def test_a_parked_command_lets_those_behind_it_pass() -> None:
    start, again = (StartRun(pipeline=NAME, run_id=RunId(name)) for name in ("p-1", "p-2"))
    state = known(start, again, record=with_arguments(DATES))
    asked = decide_once(state)
    assert isinstance(asked.effects[0], BuildRun)

    state.builds.under_way.clear()
    state.park(asked.effects[0].key, "no process")

    assert decide_once(state).about["run"] == "p-2"


def test_a_run_whose_arguments_cannot_be_rendered_is_refused() -> None:
    state = known(StartRun(pipeline=NAME, run_id=RunId("p-1")), record=with_arguments(BAD))

    refused = decide(state)

    assert refused.about["code"] == "template"
    assert "task a, argument 1: " in refused.about["message"]
    assert (state.runs.live, state.builds.results) == ({}, {})


def test_a_fire_time_whose_arguments_cannot_be_rendered_is_passed_over() -> None:
    hourly = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.ALL)
    state = known(record=with_arguments(BAD, schedule=hourly))

    refused = decide(state, NOW + timedelta(hours=2))

    assert (refused.name, state.runs.live, state.builds.results) == ("schedule_refused", {}, {})
    assert state.catalog.pipelines[NAME].schedule_position == NOW + timedelta(hours=1)
    assert fired_runs(state, NOW + timedelta(hours=2)) == []


def test_a_fire_time_is_rendered_again_when_another_release_became_active_meanwhile() -> None:
    hourly = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.LATEST)
    state = known(record=with_arguments(DATES, schedule=hourly))
    later = NOW + timedelta(hours=1)
    build(state, decide_once(state, later))
    newer = with_arguments(replace(DATES, args=("{{ 6 * 7 }}",)), schedule=hourly)

    state.put_pipeline(newer)
    decide(state, later)

    run = state.runs.live[RunId("p-20260301t130000z")]
    assert (run.release, run.tasks[TaskName("a")].spec.args) == (newer.release, ("42",))


@pytest.mark.parametrize("catchup", list(CatchUp))
def test_a_fire_time_starts_its_run_however_long_its_arguments_take(catchup: CatchUp) -> None:
    """Otherwise a schedule with fire times faster than the rendering would never start a run."""
    minutely = Schedule(cron="* * * * *", timezone="UTC", catchup=catchup)
    state = known(record=with_arguments(DATES, schedule=minutely))
    due = NOW + timedelta(minutes=1)
    asked = decide_once(state, due)
    assert next_decision(state, due) is None

    build(state, asked)
    decide_once(state, due + timedelta(minutes=5))

    assert list(state.runs.live) == ["p-20260301t120100z"]
    assert state.catalog.pipelines[NAME].schedule_position == due
    assert state.builds.results == {}


def test_a_fire_time_that_waits_for_its_arguments_holds_back_no_other_pipeline() -> None:
    hourly = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.LATEST)
    slow = with_arguments(DATES, schedule=hourly)
    other = PipelineName("q")
    without = replace(SPEC, name=other, schedule=hourly, tasks=(replace(DATES, args=()),))
    plain = active(without, schedule_position=NOW)
    state = known(record=slow)
    state.put_pipeline(plain)

    asked, other_asked = (decide_once(state, NOW + timedelta(hours=1)) for _ in range(2))
    build(state, other_asked)
    decide_once(state, NOW + timedelta(hours=1))

    assert isinstance(asked.effects[0], BuildRun)
    assert asked.effects[0].draft.pipeline == NAME
    assert list(state.runs.live) == ["q-20260301t130000z"]


def test_what_stops_something_is_answered_before_what_starts_something() -> None:
    starts = [StartRun(pipeline=NAME, run_id=RunId(f"p-{n}")) for n in range(3)]
    other = PipelineName("q")
    state = known(*starts, StopRun(run_id=RunId("r-1"), reason="test"), PausePipeline(pipeline=other))
    state.put_pipeline(replace(RECORD, name=other))

    types = [decide_once(state).about["type"] for _ in range(2)]

    assert sorted(types) == ["pause_pipeline", "stop_run"]


def test_a_stop_waits_for_the_start_of_its_own_run() -> None:
    state = known(START, StopRun(run_id=START.run_id, reason="test"))

    assert [decide(state).about["code"] for _ in range(2)] == ["ok", "ok"]


def test_copy_of_a_run_with_an_interval_is_built_once() -> None:
    """Only the build knows the release and the interval of the earlier run."""
    interval = DataInterval(start=NOW - timedelta(days=1), end=NOW)
    asked = Draft(
        id=RunId("p-2"),
        pipeline=NAME,
        release=DIGEST,
        parameters={},
        logical_date=NOW,
        cause=RunCause.MANUAL,
        asked_at=NOW,
        selection=Selection(scope=Scope.ALL, reuse=RunId("p-1"), is_rerun=True, is_copy=True),
    )
    made, state, key = replace(asked, data_interval=interval), known(), Key("pipeline", NAME)
    state.builds.results[key] = Built(made, new_run(SPEC, made))

    assert isinstance(run_starts.built(state, key, asked), Run)
