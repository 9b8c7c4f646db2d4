"""Rules of the leader, one situation each. What holds for every order of events is in tests/property."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain import writes as w
from nimbus.domain.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.commands import (
    Abdicate,
    ActivatePipeline,
    Command,
    PausePipeline,
    PublishRelease,
    QueuedCommand,
    RemovePipeline,
    StartRun,
    StopRun,
)
from nimbus.domain.ids import CommandId, HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipeline import (
    CatchUp,
    ParameterSpec,
    PipelineSpec,
    Priority,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.run import RunState
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.decision import ArchiveRun, Decision, PrepareRelease, ResignLeadership
from nimbus.engine.facts import Facts, Refusal
from nimbus.engine.rules import assign, next_decision, next_wakeup

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAME = PipelineName("p")
DIGEST = ReleaseDigest("a" * 64)
NEWER = ReleaseDigest("b" * 64)
SPEC = PipelineSpec(
    name=NAME,
    parameters={"month": ParameterSpec(type="integer", default=1, minimum=1, maximum=12)},
    tasks=(
        TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", args=("{{ params.month }}",)),
        TaskSpec(name=TaskName("b"), kind=TaskKind.PYTHON, script="b.py", needs=(TaskName("a"),)),
    ),
)
RECORD = PipelineRecord(
    name=NAME,
    state=PipelineState.ACTIVE,
    published=DIGEST,
    published_spec=SPEC,
    release=DIGEST,
    spec=SPEC,
    schedule_position=NOW,
    updated_at=NOW,
)


def a_worker(name: str, *, slots: int = 1, draining: bool = False, load: float = 0.0) -> WorkerInfo:
    return WorkerInfo(
        id=WorkerId(name),
        host=HostId("h"),
        hostname="h",
        pid=1,
        slots=slots,
        version="1",
        started_at=NOW,
        draining=draining,
        load_average=load,
    )


def facts(
    *commands: Command, workers: tuple[WorkerInfo, ...] = (), record: PipelineRecord | None = RECORD
) -> Facts:
    queued = tuple(
        QueuedCommand(id=CommandId(f"cmd-{n}"), command=command, submitted_at=NOW)
        for n, command in enumerate(commands)
    )
    return Facts(
        epoch=3,
        pipelines={} if record is None else {NAME: record},
        commands=queued,
        workers={worker.id: worker for worker in workers},
    )


def decide(known: Facts, now: datetime = NOW) -> Decision:
    decision = next_decision(known, now)
    assert decision is not None
    return decision


def refusal(known: Facts) -> str:
    decision = decide(known)
    (write,) = decision.writes
    assert isinstance(write, w.ConsumeCommand)
    assert not write.outcome.accepted
    return write.outcome.code


START = StartRun(pipeline=NAME, run_id=RunId("p-1"), parameters={"month": 2})


def test_a_run_starts_in_the_transaction_that_consumes_its_command() -> None:
    decision = decide(facts(START))

    created, consumed = decision.writes
    assert isinstance(created, w.CreateRun)
    assert isinstance(consumed, w.ConsumeCommand)
    assert consumed.outcome.accepted
    assert created.run.release == DIGEST
    assert created.run.tasks[TaskName("a")].spec.args == ("2",)
    assert decision.facts.commands == ()


def test_asking_twice_starts_one_run() -> None:
    once = decide(facts(START, START)).facts
    again = decide(once)

    assert [type(write) for write in again.writes] == [w.ConsumeCommand]
    assert list(again.facts.runs) == ["p-1"]


@pytest.mark.parametrize(
    ("known", "code"),
    [
        (facts(START, record=None), "unknown_pipeline"),
        (facts(START, record=replace(RECORD, release=None, spec=None)), "not_active"),
        (facts(replace(START, parameters={"month": 13})), "invalid_parameters"),
        (facts(replace(START, parameters={"mouth": 1})), "invalid_parameters"),
        (replace(facts(START), quarantined={NAME: "x.py is nowhere"}), "quarantined"),
        (facts(StopRun(run_id=RunId("nope"), reason="test")), "unknown_run"),
        (facts(PausePipeline(pipeline=PipelineName("q"))), "unknown_pipeline"),
        (
            facts(PausePipeline(pipeline=NAME), record=replace(RECORD, state=PipelineState.INACTIVE)),
            "not_active",
        ),
        (facts(RemovePipeline(pipeline=PipelineName("q"))), "unknown_pipeline"),
        (facts(ActivatePipeline(pipeline=PipelineName("q"))), "unknown_pipeline"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_code_and_changes_nothing(known: Facts, code: str) -> None:
    assert refusal(known) == code


def test_a_pipeline_with_live_runs_cannot_be_removed() -> None:
    running = decide(facts(START)).facts

    assert (
        refusal(replace(running, commands=facts(RemovePipeline(pipeline=NAME)).commands)) == "pipeline_in_use"
    )


def test_a_release_becomes_known_only_once_it_is_on_the_leaders_disk() -> None:
    release = ReleaseOf(NAME, NEWER)
    asked = decide(facts(PublishRelease(pipeline=NAME, digest=NEWER, activate=True)))
    assert (asked.effects, asked.writes) == ((PrepareRelease(release),), ())
    assert next_decision(asked.facts, NOW) is None, "it waits for the disk"

    ready = replace(asked.facts, preparing=frozenset(), prepared={release: SPEC})
    put, consumed = decide(ready).writes

    assert isinstance(put, w.PutPipeline)
    assert (put.record.release, put.record.published) == (NEWER, NEWER)
    assert isinstance(consumed, w.ConsumeCommand)


def test_a_release_that_cannot_be_had_is_refused_and_the_old_one_stays() -> None:
    known = replace(
        facts(PublishRelease(pipeline=NAME, digest=NEWER, activate=True)),
        prepared={ReleaseOf(NAME, NEWER): Refusal("release_absent", "not in storage")},
    )

    assert refusal(known) == "release_absent"
    assert decide(known).facts.pipelines[NAME] == RECORD


def test_a_command_that_waits_holds_back_its_own_pipeline_and_no_other() -> None:
    other = PipelineName("q")
    known = facts(PublishRelease(pipeline=NAME, digest=NEWER), START, PausePipeline(pipeline=other))
    known = replace(known, pipelines={**known.pipelines, other: replace(RECORD, name=other)})

    waiting = decide(known).facts
    paused = decide(waiting)

    assert paused.facts.pipelines[other].state is PipelineState.PAUSED
    assert next_decision(paused.facts, NOW) is None


def test_an_abdication_is_consumed_before_leadership_is_given_up() -> None:
    accepted = decide(facts(Abdicate(reason="upgrade")))
    resigning = decide(accepted.facts)

    assert [type(write) for write in accepted.writes] == [w.PutAbdication, w.ConsumeCommand]
    assert (accepted.effects, resigning.writes) == ((), ())
    assert resigning.effects == (ResignLeadership("upgrade"),)
    assert next_decision(resigning.facts, NOW) is None


def test_the_intent_is_written_with_the_order_and_the_place_of_its_slots() -> None:
    running = decide(facts(START, workers=(a_worker("w1"),))).facts
    put, created, assigned = decide(running).writes

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
    decision = decide(decide(facts(START, workers=workers)).facts)

    assert decision.about["worker"] == chosen


def test_nothing_is_opened_while_no_slot_is_free() -> None:
    running = decide(facts(START, workers=(a_worker("w1", draining=True),))).facts

    assert next_decision(running, NOW) is None


def test_a_ready_task_opens_when_a_more_urgent_one_has_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SPEC, tasks=tuple(replace(task, needs=()) for task in SPEC.tasks))
    known = facts(START, workers=(a_worker("w1"),), record=replace(RECORD, spec=spec))
    running = decide(known).facts
    answers = iter((None, running.workers[WorkerId("w1")]))
    # No rule makes the choice depend on the task yet; labels and pools will.
    monkeypatch.setattr(assign, "choose_worker", lambda *_args: next(answers))

    assert decide(running).about["attempt"] == "p-1.b.1"


def test_the_more_urgent_run_goes_first() -> None:
    urgent = StartRun(pipeline=NAME, run_id=RunId("p-2"), priority=Priority.HIGHEST)
    known = facts(START, urgent, workers=(a_worker("w1"),))

    opened = decide(decide(decide(known).facts).facts)

    assert opened.about["attempt"] == "p-2.a.1"


def test_an_overdue_run_fails_and_says_when_it_was_due() -> None:
    running = decide(facts(START)).facts
    run = replace(running.runs[RunId("p-1")], deadline=NOW + timedelta(minutes=5))
    running = replace(running, runs={run.id: run})

    assert next_wakeup(running, NOW) == NOW + timedelta(minutes=5)
    late = decide(running, NOW + timedelta(minutes=5))
    assert late.facts.runs[run.id].state is RunState.FAILED
    assert "12:05:00" in late.facts.runs[run.id].reason


def test_a_stopping_run_fences_what_was_not_claimed() -> None:
    running = decide(decide(facts(START, workers=(a_worker("w1"),))).facts).facts
    stopping = decide(
        replace(running, commands=facts(StopRun(run_id=RunId("p-1"), reason="test")).commands)
    ).facts

    fenced = decide(stopping)

    assert [type(write) for write in fenced.writes] == [w.WriteClaim, w.WriteEnd, w.PutRun, w.Unassign]
    assert fenced.facts.runs[RunId("p-1")].state is RunState.STOPPED


def finished(known: Facts) -> Facts:
    run = replace(known.runs[RunId("p-1")], state=RunState.SUCCEEDED, finished_at=NOW)
    return replace(known, runs={run.id: run})


def test_a_finished_run_goes_to_history_and_leaves_zookeeper_later() -> None:
    done = finished(decide(facts(START)).facts)
    archiving = decide(done)
    assert archiving.effects == (ArchiveRun(done.runs[RunId("p-1")]),)
    assert next_decision(archiving.facts, NOW + timedelta(days=1)) is None, "not before history has it"

    archived = replace(archiving.facts, archived=frozenset({RunId("p-1")}), archiving=frozenset())
    assert next_decision(archived, NOW + timedelta(minutes=59)) is None
    dropped = decide(archived, NOW + timedelta(hours=1))
    assert dropped.writes[-1] == w.RemoveRun(RunId("p-1"))
    assert dropped.facts.runs == {}


def scheduled(catchup: CatchUp) -> Facts:
    spec = replace(SPEC, schedule=Schedule(cron="0 * * * *", timezone="UTC", catchup=catchup))
    return facts(record=replace(RECORD, spec=spec))


def test_a_fire_time_starts_its_run_and_moves_the_position_in_one_transaction() -> None:
    known = scheduled(CatchUp.LATEST)
    assert next_decision(known, NOW + timedelta(minutes=59)) is None
    assert next_wakeup(known, NOW) == NOW + timedelta(hours=1)

    fired = decide(known, NOW + timedelta(hours=1))

    put, created = fired.writes
    assert isinstance(put, w.PutPipeline)
    assert isinstance(created, w.CreateRun)
    assert put.record.schedule_position == NOW + timedelta(hours=1)
    assert created.run.id == "p-20260301t130000z"
    assert next_decision(fired.facts, NOW + timedelta(hours=1)) is None, "it fires once"


def fired_runs(known: Facts, now: datetime, settle: Callable[[Facts], Facts] = lambda f: f) -> list[str]:
    while (decision := next_decision(known, now)) is not None:
        known = settle(decision.facts)
    return sorted(known.runs)


def test_missed_fire_times_are_made_up_for_as_the_schedule_says() -> None:
    later = NOW + timedelta(hours=3, minutes=10)

    assert fired_runs(scheduled(CatchUp.NONE), later) == []
    assert fired_runs(scheduled(CatchUp.LATEST), later) == ["p-20260301t150000z"]
    assert fired_runs(scheduled(CatchUp.ALL), later) == [
        "p-20260301t130000z",
        "p-20260301t140000z",
        "p-20260301t150000z",
    ]


def test_the_latest_of_very_many_missed_fire_times_starts_one_run() -> None:
    known = scheduled(CatchUp.LATEST)

    assert fired_runs(known, NOW + timedelta(hours=2500)) == ["p-20260613t160000z"]


def test_a_takeover_around_a_fire_time_is_on_time_without_catch_up() -> None:
    assert fired_runs(scheduled(CatchUp.NONE), NOW + timedelta(hours=1, seconds=40)) == ["p-20260301t130000z"]


def test_a_paused_or_quarantined_pipeline_does_not_fire() -> None:
    later = NOW + timedelta(hours=1)
    paused = scheduled(CatchUp.ALL)
    paused = replace(paused, pipelines={NAME: replace(paused.pipelines[NAME], state=PipelineState.PAUSED)})

    assert fired_runs(paused, later) == []
    assert fired_runs(replace(scheduled(CatchUp.ALL), quarantined={NAME: "x"}), later) == []


def test_what_passed_while_paused_is_not_made_up_for_on_resumption() -> None:
    later = NOW + timedelta(hours=5, minutes=1)
    known = scheduled(CatchUp.ALL)
    spec = known.pipelines[NAME].spec
    assert spec is not None
    paused = replace(known.pipelines[NAME], state=PipelineState.PAUSED)
    known = replace(
        known,
        pipelines={NAME: paused},
        commands=facts(ActivatePipeline(pipeline=NAME)).commands,
        prepared={ReleaseOf(NAME, DIGEST): spec},
    )

    assert fired_runs(known, later) == []
