"""A leader's state of one pipeline, and its decisions, for tests of the rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from nimbus.domain import writes as w
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.commands import Command, QueuedCommand, StartRun
from nimbus.domain.ids import CommandId, HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    ParameterSpec,
    PipelineSpec,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.engine.decision import BuildRun, Decision
from nimbus.engine.rules import ask, next_key
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant
from tests.nimbus.definitions import active, built, digest_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAME = PipelineName("p")
NEWER = ReleaseDigest("b" * 64)
SPEC = PipelineSpec(
    name=NAME,
    parameters={"month": ParameterSpec(type="integer", default=1, minimum=1, maximum=12)},
    tasks=(
        TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", args=("{{ params.month }}",)),
        TaskSpec(name=TaskName("b"), kind=TaskKind.PYTHON, script="b.py", needs=(TaskName("a"),)),
    ),
)
DIGEST = digest_of(SPEC)
RECORD = active(SPEC, schedule_position=NOW, updated_at=NOW)


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
        reported_at=NOW,
    )


def known(
    *commands: Command, workers: tuple[WorkerInfo, ...] = (), record: PipelineRecord | None = RECORD
) -> State:
    """A leader's state with waiting commands."""
    state = State(epoch=3, schema=1)
    state.put_workers(workers, at(NOW))
    if record is not None:
        state.put_pipeline(record)
    submit(state, *commands)
    state.finish_loading()
    return state


def submit(state: State, *commands: Command) -> State:
    for command in commands:
        number = next(numbers)
        state.commands.put(QueuedCommand(id=CommandId(f"cmd-{number}"), command=command, submitted_at=NOW))
    return state


numbers = count()


def at(now: datetime) -> Instant:
    return Instant(now, (now - NOW).total_seconds())


def next_decision(state: State, now: datetime = NOW) -> Decision | None:
    """The next decision, applied to the state as if it were written; None if there is none."""
    state.wake(at(now))
    while (key := next_key(state)) is not None:
        answer = ask(state, key, at(now))
        if isinstance(answer, Decision):
            state.apply(answer, at(now))
            return answer
        state.postpone(key, answer)
    return None


def decide_once(state: State, now: datetime = NOW) -> Decision:
    decision = next_decision(state, now)
    assert decision is not None
    return decision


def decide(state: State, now: datetime = NOW) -> Decision:
    """The next decision, whose requested run is already built."""
    while True:
        decision = decide_once(state, now)
        if not any(isinstance(effect, BuildRun) for effect in decision.effects):
            return decision
        build(state, decision)


def build(state: State, decision: Decision) -> None:
    """Build the run that a decision requests."""
    for effect in decision.effects:
        if isinstance(effect, BuildRun):
            state.run_built(effect.key, built(effect).built)


def refusal(state: State) -> str:
    decision = decide(state)
    (write,) = decision.writes
    assert isinstance(write, w.ConsumeCommand)
    assert not write.outcome.accepted
    return write.outcome.code


START = StartRun(pipeline=NAME, run_id=RunId("p-1"), parameters={"month": 2})


def scheduled(catchup: CatchUp) -> PipelineRecord:
    spec = replace(SPEC, schedule=Schedule(cron="0 * * * *", timezone="UTC", catchup=catchup))
    return active(spec, schedule_position=NOW)


def fired_runs(state: State, now: datetime) -> list[str]:
    """The ids of all runs, once nothing is left to decide."""
    while (decision := next_decision(state, now)) is not None:
        build(state, decision)
    return sorted(state.runs.live)
