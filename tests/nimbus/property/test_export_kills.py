"""The leader is killed at each step of sending traces and lineage: nothing is missing, repetitions are equal.

Leaders that break the law are detected: see the mutants at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nimbus.domain import writes as w
from nimbus.domain.commands import StartRun
from nimbus.domain.data.lineage import EventType, Family, LineageEvent, events, lineage_run
from nimbus.domain.ids import AttemptId, ClusterId, RunId, TaskName
from nimbus.domain.pipelines.pipeline import Retries
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.runs.traces import (
    Span,
    attempt_span_id,
    attempt_uuid,
    dropped,
    from_slots,
    run_span_id,
    run_uuid,
    spans,
)
from nimbus.engine import sending
from nimbus.engine.decision import ArchiveRun
from nimbus.engine.events import RunArchived
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.policy import Policy
from nimbus.engine.sending import RunExports
from nimbus.telemetry.engine import ExportMetrics
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.engine_bench import NAME, NOW, SPEC, Bench
from tests.thorough import at_most

CLUSTER = ClusterId("1-2")
TASK = TaskName("a")
RETRIED = replace(SPEC, tasks=(replace(SPEC.tasks[0], retries=Retries(limit=1, delay=timedelta(0))),))
ENDS = ((Outcome.SUCCEEDED,), (Outcome.FAILED, Outcome.SUCCEEDED), (Outcome.FAILED, Outcome.FAILED))


class KilledError(BaseException):
    """The leader's process died. Not an Exception, so that the engine cannot catch it."""


class Jobs:
    """Replaces a pool of one thread: the test decides when its work runs."""

    waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # noqa: RUF012 - of all, cleared by a kill

    def __init__(self, *_args: object, **_named: object) -> None:
        pass

    def submit(self, work: Callable[..., None], *args: object) -> None:
        self.waiting.append((work, args))


class MortalBench(Bench):
    """A leader that can be killed before and after each transaction, each event and each span."""

    def __init__(self, kill_at: Sequence[int], kinds: Sequence[str] = ("traces", "lineage")) -> None:
        self.left = sorted(kill_at, reverse=True)
        self.sinks = {"traces": Traces, "lineage": Lineage}
        self.kinds = kinds
        self.written: Counter[str] = Counter()
        self.step = -1
        self.events: list[LineageEvent] = []
        self.spans: list[Span] = []
        self.kills: Counter[str] = Counter()
        super().__init__()

    def __post_init__(self) -> None:
        bench = self

        class MortalStore(DictLeaderStore):
            def __init__(self, cluster: DictCluster, epoch: int) -> None:
                super().__init__(cluster, epoch)

            def _commit(self, writes: Sequence[w.Write]) -> None:
                bench.point("before a transaction")
                super()._commit(writes)
                bench.written.update(type(write).__name__ for write in writes)
                bench.point("after a transaction")

        self.store = MortalStore
        self.begin()
        super().__post_init__()
        self.cluster.change(pipelines={NAME: active(RETRIED, schedule_position=NOW, updated_at=NOW)})
        self.epoch = 1
        self.succeed()

    def begin(self) -> None:
        """Start a new process, without memory."""
        Jobs.waiting.clear()
        self.effects.clear()
        self.exports = RunExports(
            {kind: self.sinks[kind](self) for kind in self.kinds},
            leads=lambda: True,
            clock=self.clocks,
            give_up_after=timedelta(hours=1),
            metrics=ExportMetrics(CollectorRegistry()),
        )
        self.follow = self.exports.follow

    def succeed(self) -> None:
        """Let another process lead."""
        while True:
            try:
                self.epoch += 1
                self.begin()
                self.elect(self.epoch, self.store, Policy(keep_finished=timedelta(0)))
            except KilledError:
                continue
            return

    def point(self, what: str) -> None:
        """The process may die here."""
        self.step += 1
        if self.left and self.left[-1] <= self.step:
            self.left.pop()
            self.kills[what] += 1
            raise KilledError

    def live(self) -> None:
        """Let leaders work, one after the other, until nothing is left to do."""
        while True:
            try:
                self.decide()
                self.decide()  # a retry without a pause is due at the next decision
                archived = [effect.run for effect in self.effects if isinstance(effect, ArchiveRun)]
                if not archived and not Jobs.waiting:
                    return
                self.effects.clear()
                for run in archived:
                    self.exports.finish(self.run(run), lambda run=run: self._archived(run))  # type: ignore[misc]
                if not archived:  # the engine continues before any of it is sent
                    work, args = Jobs.waiting.pop(0)
                    work(*args)
            except KilledError:
                self.succeed()

    def _archived(self, run: RunId) -> None:
        self.point("after a run is told to be archived")
        self.term.apply((RunArchived(run),))

    def take(self, kept: list[Any], one: Any, what: str) -> None:
        """A collector accepts something."""
        self.point(f"before {what}")
        kept.append(one)
        self.point(f"after {what}")


class Lineage:
    """A sink that sends to the bench."""

    follows = True

    def __init__(self, bench: MortalBench) -> None:
        self.bench = bench

    def send(self, before: Run | None, run: Run) -> int:
        slots = self.bench.cluster.world.slots
        gone = from_slots({attempt: slots[attempt] for attempt in dropped(before, run)})
        for event in events(CLUSTER, before, run, Family(None, lineage_run(CLUSTER, run)), gone):
            self.bench.take(self.bench.events, event, "an event")
        return 0

    def close(self) -> None:
        pass


class Traces(Lineage):
    """A sink for traces that sends to the bench."""

    follows = False

    def send(self, before: Run | None, run: Run) -> int:
        for span in spans(CLUSTER, run, {}):
            self.bench.take(self.bench.spans, span, "a span")
        return 0


def play(kill_at: Sequence[int]) -> MortalBench:
    return played(MortalBench(kill_at))


def played(bench: MortalBench) -> MortalBench:
    for number, outcomes in enumerate(ENDS):
        run = RunId(f"r{number}")
        bench.submit(StartRun(pipeline=NAME, run_id=run))
        bench.live()
        for tried, outcome in enumerate(outcomes, 1):
            attempt = AttemptId(run, TASK, tried)
            started = {one.of.run_id for one in bench.events if one.type is EventType.START}
            missing = {run_uuid(CLUSTER, run), attempt_uuid(CLUSTER, attempt)} - started
            assert not missing or "lineage" not in bench.kinds, "no START of what is under way"
            bench.claim(attempt)
            bench.end(attempt, outcome)
            bench.live()
    return bench


def check(bench: MortalBench) -> None:
    attempts = [
        AttemptId(RunId(f"r{number}"), TASK, tried + 1)
        for number, outcomes in enumerate(ENDS)
        for tried in range(len(outcomes))
    ]
    assert not bench.cluster.world.runs, "runs are left"
    told = defaultdict(list)
    for event in bench.events:
        told[event.of.run_id, event.type is EventType.START].append(event)
    ids = {run_uuid(CLUSTER, one.run) for one in attempts} | {attempt_uuid(CLUSTER, one) for one in attempts}
    assert told.keys() == {(one, is_start) for one in ids for is_start in (True, False)}
    assert all(again == first for first, *others in told.values() for again in others)
    for one in ids:
        assert bench.events.index(told[one, True][0]) < bench.events.index(told[one, False][0])
    traced = defaultdict(list)
    for span in bench.spans:
        traced[span.span_id].append(span)
    roots = {run_span_id(CLUSTER, one.run) for one in attempts}
    assert traced.keys() == roots | {attempt_span_id(CLUSTER, one) for one in attempts}
    assert all(again == first for first, *others in traced.values() for again in others)
    assert all(span.parent_id in roots for span in bench.spans if span.span_id not in roots)


@pytest.fixture(autouse=True)
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "ThreadPoolExecutor", Jobs)


def test_nothing_comes_twice_when_no_leader_dies() -> None:
    bench = play(())

    check(bench)
    assert len(bench.events) == len({(event.of.run_id, event.type) for event in bench.events})
    assert len(bench.spans) == len({span.span_id for span in bench.spans})


def test_the_leader_writes_nothing_more_for_it() -> None:
    without = played(MortalBench((), ()))

    assert without.events == without.spans == []
    assert play(()).written == without.written


def test_all_is_told_when_the_leader_is_killed_at_each_step_of_its_life() -> None:
    steps = play(()).step + 1
    killed: Counter[str] = Counter()

    for at in range(steps):
        bench = play((at,))
        check(bench)
        killed += bench.kills

    assert killed.total() == steps
    assert len(killed) == 7


@pytest.mark.parametrize("seed", range(at_most(10)))
def test_all_is_told_when_leaders_are_killed_again_and_again(seed: int) -> None:
    rng = Random(seed)
    at, points = 0, []
    for _ in range(8):
        at += rng.randint(1, 25)
        points.append(at)

    check(play(points))


def archived_before_it_is_sent(found: RunExports, run: Run, done: Callable[[], None]) -> None:
    done()
    for export in found._exports:
        export.finish(run, lambda: None)


def follows_only_its_own(term: LeaderTerm, runs: Sequence[Run]) -> None:
    for run in runs:
        if term._follow is not None and term.state.is_loaded:
            term._follow(term.state.epoch, run)


@pytest.mark.parametrize(
    ("owner", "name", "mutant"),
    [
        (RunExports, "finish", archived_before_it_is_sent),
        (LeaderTerm, "_notify_followers", follows_only_its_own),
    ],
)
def test_leader_that_breaks_the_law_is_found(
    owner: type, name: str, mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = play(()).step + 1
    monkeypatch.setattr(owner, name, mutant)

    with pytest.raises(AssertionError):
        for at in range(steps):
            check(play((at,)))
