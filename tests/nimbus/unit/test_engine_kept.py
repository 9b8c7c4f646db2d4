"""Tasks that are kept running, by the leader's rules: ends, activations, drains, records."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.cluster.alerts import AlertEvent, NotifyRule
from nimbus.domain.commands import (
    ActivatePipeline,
    Command,
    CommandOutcome,
    CordonWorker,
    PausePipeline,
    PublishRelease,
    QueuedCommand,
    RemovePipeline,
    StartRun,
    StopRun,
    UncordonWorker,
)
from nimbus.domain.ids import AttemptId, CommandId, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Retries, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.engine.decision import BuildRun, Decision, PrepareRelease
from nimbus.engine.policy import AlertPolicy, Policy
from nimbus.engine.rules import ask, next_key
from nimbus.engine.state import State
from tests.nimbus.definitions import active, digest_of, on_disk
from tests.nimbus.unit.rule_stage import NAME, NOW, a_worker, at, build

STREAM = TaskName("stream")


def a_release(description: str, *, kept: bool = True) -> PipelineSpec:
    task = TaskSpec(
        name=STREAM,
        kind=TaskKind.PYSPARK,
        script="stream.py",
        keeps_running=kept,
        retries=Retries(delay=timedelta(seconds=10), max_delay=timedelta(minutes=10)),
    )
    limit = Concurrency(limit=1) if kept else None
    return PipelineSpec(name=NAME, description=description, tasks=(task,), concurrency=limit)


ONE, TWO, THREE = a_release("one"), a_release("two"), a_release("three")
PLAIN = a_release("plain", kept=False)


class Stage:
    """A leader of one pipeline, whose releases are on its disk. Effects end at once."""

    def __init__(self, *workers: str) -> None:
        self.state = State(epoch=3, schema=1)
        self.now, self.commands, self.turns = NOW, 0, list[Decision]()
        self.state.put_workers([a_worker(name) for name in workers or ("w1", "w2")], at(NOW))
        self.record = active(ONE, release=None, schedule_position=NOW)
        self.state.put_pipeline(self.record)
        for spec in (ONE, TWO, THREE, PLAIN):
            on_disk(ReleaseOf(NAME, digest_of(spec)), spec)
        self.state.finish_loading()

    def ask(self, command: Command) -> CommandOutcome:
        """Queue a command, and decide until nothing is left. Returns its outcome."""
        self.commands += 1
        queued = CommandId(f"cmd-{self.commands:010d}")
        self.state.commands.put(QueuedCommand(id=queued, command=command, submitted_at=self.now))
        return next(
            write.outcome
            for decision in self.decide()
            for write in decision.writes
            if isinstance(write, w.ConsumeCommand) and write.outcome.command == queued
        )

    def decide(self, *, after: timedelta = timedelta(0)) -> list[Decision]:
        self.now += after
        made = []
        self.state.wake(at(self.now))
        while (key := next_key(self.state)) is not None:
            answer = ask(self.state, key, at(self.now))
            if not isinstance(answer, Decision):
                self.state.postpone(key, answer)
                continue
            made.append(answer)
            self.state.apply(answer, at(self.now))
            for effect in answer.effects:
                if isinstance(effect, BuildRun):
                    build(self.state, answer)
                elif isinstance(effect, PrepareRelease):
                    spec = next(s for s in (ONE, TWO, THREE, PLAIN) if digest_of(s) == effect.release.digest)
                    self.state.commands.release_prepared(effect.release, spec)
        self.turns += made
        return made

    def activate(self, spec: PipelineSpec) -> CommandOutcome:
        return self.ask(PublishRelease(pipeline=NAME, digest=digest_of(spec), activate=True))

    def live(self) -> list[Run]:
        return sorted(self.state.runs.live.values(), key=lambda run: run.created_at)

    @property
    def run(self) -> Run:
        (run,) = self.live()
        return run

    def claim(self) -> AttemptId:
        """Claim the open attempt, whose runner then beats."""
        (attempt,) = self.state.attempts.slots
        claim = Claim(attempt=str(attempt), claimed_at=self.now)
        self.state.attempts.put_slots(attempt, Slots(claim=claim, has_heartbeat=True), at(self.now))
        self.decide()
        return attempt

    def end(self, outcome: Outcome, *, ran: timedelta = timedelta(seconds=1)) -> list[Decision]:
        """End the open attempt, whose code ran for this long."""
        (attempt,) = self.state.attempts.slots
        self.now += ran
        end = End(
            attempt=str(attempt),
            outcome=outcome,
            written_by="runner",
            started_at=self.now - ran,
            ended_at=self.now,
            reason="why",
        )
        self.state.attempts.put_slots(attempt, Slots(end=end), at(self.now))
        return self.decide()


def names(decisions: list[Decision]) -> list[str]:
    return [decision.name for decision in decisions]


def pause(stage: Stage) -> float:
    task = stage.run.tasks[STREAM]
    assert task.state is TaskState.WAITING
    assert task.retry_at is not None
    return (task.retry_at - stage.now).total_seconds()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_kept_task_is_started_again_whatever_ends_its_attempt(outcome: Outcome) -> None:
    stage = Stage()
    stage.activate(ONE)

    stage.end(outcome)
    assert (stage.run.state, stage.run.tasks[STREAM].state) == (RunState.RUNNING, TaskState.WAITING)
    stage.decide(after=timedelta(seconds=pause(stage)))

    assert stage.run.tasks[STREAM].open_attempt is not None
    assert stage.run.tasks[STREAM].tried == 2


def test_pauses_of_a_kept_task_grow_to_the_longest_and_begin_again_after_it_ran_for_as_long() -> None:
    stage = Stage()
    stage.activate(ONE)
    pauses = []
    for _ in range(9):
        stage.end(Outcome.FAILED)
        pauses.append(pause(stage))
        stage.decide(after=timedelta(seconds=pauses[-1]))
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]

    stage.end(Outcome.FAILED, ran=timedelta(minutes=10))

    assert pause(stage) == 10


def test_kept_task_has_no_last_loss_and_its_pauses_after_losses_are_short() -> None:
    stage = Stage()
    stage.activate(ONE)
    for _ in range(3 * stage.state.policy.max_infrastructure_failures):
        stage.end(Outcome.LOST)
        assert pause(stage) <= 30
        stage.decide(after=timedelta(seconds=pause(stage)))

    assert stage.run.state is RunState.RUNNING


def test_attempts_of_a_kept_task_do_not_grow_in_zookeeper() -> None:
    stage = Stage()
    stage.activate(ONE)
    held = set(stage.state.attempts.slots)
    for _ in range(200):
        (decision,) = [one for one in stage.end(Outcome.LOST) if one.name == "attempt_closed"]
        assert decision
        for opened in stage.decide(after=timedelta(seconds=pause(stage))):
            held |= {write.attempt for write in opened.writes if isinstance(write, w.CreateAttempt)}
            held -= {write.attempt for write in opened.writes if isinstance(write, w.RemoveAttempt)}

    task = stage.run.tasks[STREAM]
    assert (task.tried, len(task.attempts)) == (201, 64)
    assert sorted(attempt.number for attempt in held) == [attempt.number for attempt in task.attempts]

    run = stage.run.id
    stage.ask(StopRun(run_id=run, reason="x"))  # the attempt, which is not claimed, is fenced
    assert set(stage.state.runs.finished[run].attempts) == held


def test_run_stop_ends_a_kept_task_for_good() -> None:
    stage = Stage()
    stage.activate(ONE)
    stage.claim()
    run = stage.run.id

    stage.ask(StopRun(run_id=run, reason="enough"))
    assert stage.run.state is RunState.STOPPING
    stage.end(Outcome.STOPPED)

    assert stage.live() == []
    assert stage.state.runs.finished[run].state is RunState.STOPPED
    assert stage.decide(after=timedelta(hours=1)) == []


def test_first_activation_starts_a_run_of_the_release() -> None:
    stage = Stage()

    said = stage.activate(ONE)

    assert said.accepted, said.message
    assert f"; run {stage.run.id} starts" in said.message
    assert (stage.run.state, stage.run.cause) == (RunState.RUNNING, RunCause.ACTIVATION)
    assert stage.run.release == digest_of(ONE)
    assert stage.run.id.startswith("p-20260301t120000z-")


def test_publish_without_activation_starts_nothing() -> None:
    stage = Stage()

    stage.ask(PublishRelease(pipeline=NAME, digest=digest_of(ONE)))

    assert stage.live() == []
    assert stage.ask(ActivatePipeline(pipeline=NAME, digest=digest_of(ONE))).accepted
    assert stage.run.release == digest_of(ONE)


def test_new_release_starts_after_the_run_of_the_old_one_has_ended() -> None:
    stage = Stage()
    stage.activate(ONE)
    old = stage.claim()

    said = stage.activate(TWO)

    assert f"run {old.run} is being stopped; run " in said.message
    first, second = stage.live()
    assert (first.state, second.state) == (RunState.STOPPING, RunState.QUEUED)
    assert first.reason == f"release {digest_of(TWO)[:12]} is activated"
    assert list(stage.state.attempts.slots) == [old]
    stage.decide(after=timedelta(hours=1))
    assert list(stage.state.attempts.slots) == [old]

    stage.end(Outcome.STOPPED)

    assert (stage.run.id, stage.run.state, stage.run.release) == (second.id, RunState.RUNNING, digest_of(TWO))
    assert [attempt.run for attempt in stage.state.attempts.slots] == [second.id]


def test_activations_in_a_row_leave_one_run_of_the_last_release() -> None:
    stage = Stage()
    for spec in (ONE, TWO, PLAIN, THREE):
        stage.activate(spec)
        if spec is ONE:
            stage.claim()
    old, new = stage.live()
    assert (old.release, old.state) == (digest_of(ONE), RunState.STOPPING)
    assert (new.release, new.state) == (digest_of(THREE), RunState.QUEUED)

    stage.end(Outcome.STOPPED)

    assert (stage.run.id, stage.run.state) == (new.id, RunState.RUNNING)


def test_activation_of_the_running_release_changes_nothing_and_of_a_stopped_one_starts_it_again() -> None:
    stage = Stage()
    stage.activate(ONE)
    first = stage.claim().run
    stage.ask(PausePipeline(pipeline=NAME))
    assert stage.run.state is RunState.RUNNING

    assert stage.activate(ONE).accepted
    assert (stage.run.id, stage.run.state) == (first, RunState.RUNNING)

    stage.ask(StopRun(run_id=first, reason="x"))
    stage.end(Outcome.STOPPED)
    stage.now += timedelta(seconds=1)
    assert stage.activate(ONE).accepted
    assert stage.run.id != first


def test_release_without_kept_tasks_stops_the_kept_run() -> None:
    stage = Stage()
    stage.activate(ONE)
    stage.claim()

    stage.activate(PLAIN)
    assert stage.run.state is RunState.STOPPING
    stage.end(Outcome.STOPPED)

    assert stage.live() == []


def test_activation_whose_run_cannot_be_built_is_refused_and_the_old_run_goes_on() -> None:
    stage = Stage()
    stage.activate(ONE)
    broken = replace(TWO, variables=("missing",))
    on_disk(ReleaseOf(NAME, digest_of(TWO)), broken)

    said = stage.ask(PublishRelease(pipeline=NAME, digest=digest_of(TWO), activate=True))

    assert not said.accepted
    assert "vars.missing" in said.message
    assert (stage.run.release, stage.run.state) == (digest_of(ONE), RunState.RUNNING)
    assert stage.state.catalog.pipelines[NAME].release == digest_of(ONE)


def test_second_run_beside_a_kept_one_is_refused_with_its_name() -> None:
    stage = Stage()
    stage.activate(ONE)
    start = StartRun(pipeline=NAME, run_id=RunId("p-2"))

    said = stage.ask(start)

    assert (said.code, stage.run.id in said.message) == ("already_running", True)
    run = stage.run.id
    stage.ask(StopRun(run_id=run, reason="x"))
    assert stage.ask(start).accepted
    assert stage.run.id == "p-2"


def test_pipeline_with_a_kept_run_is_not_removed() -> None:
    stage = Stage()
    stage.activate(ONE)

    assert stage.ask(RemovePipeline(pipeline=NAME)).code == "pipeline_in_use"


def test_drained_worker_loses_its_kept_task_to_another_one_without_a_pause() -> None:
    stage = Stage()
    stage.activate(ONE)
    attempt = stage.claim()
    here = stage.run.tasks[STREAM].attempts[-1].worker

    stage.ask(CordonWorker(worker=here, reason="disk", drain=True))

    stops = [one for turn in stage.turns for one in turn.writes if isinstance(one, w.RequestStop)]
    assert stops == [w.RequestStop(attempt, f"worker {here} is drained: the task moves to another one")]
    assert stage.decide(after=timedelta(hours=1)) == []
    stage.end(Outcome.STOPPED)

    task = stage.run.tasks[STREAM]
    assert (task.tried, task.early_ends) == (2, 0)
    assert task.attempts[-1].worker == WorkerId({"w1": "w2", "w2": "w1"}[here])


def test_cordon_alone_leaves_the_kept_task_and_a_later_drain_moves_it() -> None:
    stage = Stage()
    stage.activate(ONE)
    stage.claim()
    here = stage.run.tasks[STREAM].attempts[-1].worker

    stage.ask(CordonWorker(worker=here, reason="disk"))
    assert not stage.run.tasks[STREAM].attempts[-1].stop_requested

    stage.ask(CordonWorker(worker=here, reason="disk", drain=True))
    assert stage.run.tasks[STREAM].attempts[-1].stop_requested


def test_drained_worker_that_has_not_begun_the_kept_task_never_begins_it() -> None:
    stage = Stage()
    stage.activate(ONE)
    here = stage.run.tasks[STREAM].attempts[-1].worker

    stage.ask(CordonWorker(worker=here, reason="disk", drain=True))
    stage.decide(after=timedelta(seconds=1))

    first, second = stage.run.tasks[STREAM].attempts
    assert first.outcome is Outcome.FENCED
    assert second.worker != here


def test_only_worker_is_drained_and_the_kept_task_waits_for_its_return() -> None:
    stage = Stage("w1")
    stage.activate(ONE)
    stage.claim()
    stage.ask(CordonWorker(worker=WorkerId("w1"), reason="disk", drain=True))
    stage.end(Outcome.STOPPED)
    assert stage.run.tasks[STREAM].state is TaskState.WAITING

    stage.ask(UncordonWorker(worker=WorkerId("w1")))

    assert stage.run.tasks[STREAM].open_attempt is not None
    assert not stage.run.tasks[STREAM].attempts[-1].stop_requested


def test_drain_leaves_ordinary_tasks() -> None:
    stage = Stage()
    stage.activate(PLAIN)
    stage.ask(StartRun(pipeline=NAME, run_id=RunId("p-1")))
    stage.claim()
    here = stage.run.tasks[STREAM].attempts[-1].worker

    stage.ask(CordonWorker(worker=here, reason="disk", drain=True))

    assert not stage.run.tasks[STREAM].attempts[-1].stop_requested


def test_third_early_end_in_a_row_raises_an_alert_and_again_only_after_it_ran_well() -> None:
    stage = Stage()
    rule = NotifyRule(on=(AlertEvent.FAILED,), to="oncall")
    stage.state.policy = Policy(alerts=AlertPolicy(notify=(rule,), targets=frozenset({"oncall"})))
    stage.activate(ONE)

    def end(ran: timedelta = timedelta(seconds=1)) -> list[str]:
        raised = [one for turn in stage.end(Outcome.FAILED, ran=ran) for one in turn.writes]
        stage.decide(after=timedelta(seconds=pause(stage)))
        return [one.alert.about for one in raised if isinstance(one, w.CreateAlert)]

    about = [end() for _ in range(5)]
    assert [len(raised) for raised in about] == [0, 0, 1, 0, 0]
    assert about[2][0].endswith("ended 3 times in a row soon after its start; attempt 3 failed: why")

    assert [len(end(ran)) for ran in (timedelta(minutes=10), *3 * [timedelta(seconds=1)])] == [0, 0, 1, 0]
