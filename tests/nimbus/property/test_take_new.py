"""The laws of `take: new` over random histories: the real rules, and leaders that die around transactions.

* A version is read by exactly one run that succeeds, unless a newer one of its partition comes before it is.
* A rerun reads what the run that it repeats has pinned, and nothing else. That may be read a second time.
* What is over the bound of a read is due for the next run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, cast

import pytest

from nimbus.domain import writes as w
from nimbus.domain.data import datasets as domain
from nimbus.domain.data import reads
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Accepted, OutsideData, Partitioning, Read, Version
from nimbus.domain.ids import DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import Concurrency, DataStart, PipelineSpec, Retries, TaskKind, TaskSpec
from nimbus.domain.runs import selection
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.run_number import next_number
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.due import Due, consumer_of
from nimbus.engine import history_lookups
from nimbus.engine.decision import BuildRun, Decision, FindVersions
from nimbus.engine.history_lookups import found_versions
from nimbus.engine.rules import ask, datasets, due, next_key
from nimbus.engine.rules import reads as pinning
from nimbus.engine.state import State
from nimbus.ports import History
from tests.nimbus.children_stage import Stage
from tests.nimbus.definitions import built
from tests.nimbus.simulation.mutant import replaced
from tests.thorough import at_most

HISTORIES = at_most(30)
STEPS = 60
FEW = 2
"""Versions that a read may have, and that a dataset keeps in ZooKeeper, in these histories."""
FEED, READER = DatasetName("feed"), PipelineName("reader")
_TASK = TaskSpec(
    name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", uses=("feed",), retries=Retries(limit=0)
)
SPEC = PipelineSpec(
    name=READER,
    start=DataStart(),
    concurrency=Concurrency(limit=2),  # a definition has 1, but the runs of an older release may not
    tasks=(_TASK, replace(_TASK, name=TaskName("u"), uses=(), needs=(TaskName("t"),))),
    reads=(Read(name="feed", dataset=FEED, new=True, starts=True),),
)


class Shown(NamedTuple):
    """A version that a partition has shown."""

    partition: str
    sequence: int


class Kept:
    """History: versions that have left ZooKeeper."""

    def __init__(self) -> None:
        self.versions: dict[str, Version] = {}

    def newer_versions(self, _dataset: DatasetName, sequence: int) -> Iterator[Version]:
        found = (one for one in self.versions.values() if one.sequence > sequence)
        yield from sorted(found, key=lambda one: one.sequence)


class Cluster(Stage):
    """ZooKeeper, history, and one leader after the other."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runs: dict[RunId, Run] = {}
        self.dataset: Dataset | None = None
        self.due: Due | None = consumer_of(SPEC, None)
        self.kept = Kept()
        self.found: list[FindVersions] = []
        self.shown: list[Shown] = []
        """In the order of time."""
        self.read: dict[Shown, RunId] = {}
        """The first run with each that has succeeded."""
        self.pins: dict[RunId, list[Shown]] = {}
        self.empty = 0
        super().__init__(SPEC)
        self.elect()

    def elect(self) -> None:
        """Another leader begins."""
        workers, pipelines = self.state.attempts.workers.registered.values(), self.state.catalog.pipelines
        self.state = State(epoch=self.state.epoch + 1, schema=1)
        self.state.put_workers(list(workers), self.instant())
        self.state.catalog.datasets = {} if self.dataset is None else {FEED: self.dataset}
        self.state.catalog.put_due(READER, self.due)
        for run in self.runs.values():
            self.state.runs.put(run, self.instant(), self.slots)
        for record in pipelines.values():
            self.state.put_pipeline(record)
        self.state.finish_loading()
        self.found.clear()

    def commit(self, decision: Decision) -> bool:
        """Apply a decision; false: the leader dies before its transaction, or after it."""
        fate = self.rng.random() if decision.writes else 1
        if fate >= 0.02:
            self.note(decision)
        if fate < 0.04:
            self.elect()
            return False
        self.state.apply(decision, self.instant())
        return True

    def decide(self) -> None:
        self.state.wake(self.instant())
        while (key := next_key(self.state)) is not None:
            answer = ask(self.state, key, self.instant())
            if not isinstance(answer, Decision):
                self.state.postpone(key, answer)
                continue
            if not self.commit(answer):
                continue
            for effect in answer.effects:
                if isinstance(effect, BuildRun):
                    self.state.run_built(effect.key, built(effect, self.runs).built)
                elif isinstance(effect, FindVersions):
                    self.found.append(effect)

    def note(self, decision: Decision) -> None:
        for write in decision.writes:
            match write:
                case w.CreateRun(run) | w.PutRun(run, _):
                    self.check_run(run, self.runs.get(run.id))
                    self.runs[run.id] = run
                case w.PutDataset(dataset, before):
                    assert before == self.dataset
                    self.dataset = dataset
                case w.PutDue(_, after, before):
                    assert before == self.due
                    self.due = after
                case _:
                    pass

    def check_run(self, run: Run, before: Run | None) -> None:
        pins = run.pins.get("feed")
        if pins is not None and run.id not in self.pins:
            found = [Shown(one.partition, one.sequence) for one in pins]
            assert len(found) <= FEW, "more is pinned than a read may have"
            if run.rerun_of in self.pins:
                assert found == self.pins[run.rerun_of], "a rerun reads something else"
            else:
                assert not self.read.keys() & set(found), "what a run has read is read again"
            self.pins[run.id] = found
            self.empty += not found
        if run.id in self.pins:
            assert [Shown(one.partition, one.sequence) for one in pins or ()] == self.pins[run.id], "new pins"
        assert before is None or run.rerun_of not in self.pins or pins is not None, "a rerun lost its pins"
        if run.state is RunState.SUCCEEDED and (before is None or not before.state.is_final):
            for one in self.pins[run.id]:
                first = self.read.setdefault(one, run.id)
                is_again = first == run.id or {run.rerun_of, self.runs[first].rerun_of} & self.pins.keys()
                assert is_again, f"{run.id} and {first} have read {one}"

    # -- what happens

    def publish(self) -> None:
        """A version comes. Sometimes an older run publishes after a newer one of the same partition."""
        partition = self.rng.choice("abcdef")
        known = self.state.catalog.datasets.get(FEED)
        newest = None if known is None else known.version(partition)
        sequence = number = next_number(self.state.epoch, self.state.runs.newest_number)
        if newest is not None and (is_late := self.rng.random() < 0.2):
            number = newest.number - 1
        else:
            is_late = False
        for version in () if known is None else known.unstored:
            self.kept.versions[version.partition] = max(
                version, self.kept.versions.get(version.partition, version), key=lambda one: one.number
            )
        version = Version(
            partition=partition,
            number=number,
            sequence=sequence,
            at=self.now,
            outside=OutsideData(uri="s3://x/y"),
        )
        accepted = Accepted(dataset=FEED, partition=Partitioning.KEY)
        put = datasets.with_version(self.state, accepted, version, PipelineName("feeding"))
        noted = due.with_due(self.state, Decision(name="published", writes=(put,)), self.now)
        before = self.dataset
        self.commit(noted)
        if self.dataset != before and not is_late:
            self.shown.append(Shown(partition, sequence))
        self.decide()

    def find(self) -> None:
        """A look-up ends, perhaps long after it began."""
        if self.found:
            effect = self.found.pop(self.rng.randrange(len(self.found)))
            found: Any = found_versions(effect.asked, cast(History, self.kept), lambda _read: ())
            self.state.tasks.versions_found(effect.run.id, effect.task, found)
        self.decide()

    def ended(self) -> None:
        """A run ends, well or not."""
        if begun := [run for run in self.state.runs.live.values() if run.open_attempts()]:
            self.end(self.rng.choice(begun), self.rng.choice((Outcome.SUCCEEDED, Outcome.FAILED)))

    def by_hand(self) -> None:
        """A run is started, or repeated in part or completely."""
        number, ended = len(self.runs), [run.id for run in self.runs.values() if run.state.is_final]
        chosen = None
        if ended and self.rng.random() < 0.6:
            scope = self.rng.choice((Scope.ALL, Scope.FROM))
            tasks = () if scope is Scope.ALL else (TaskName("t"),)
            chosen = Selection(scope=scope, tasks=tasks, reuse=self.rng.choice(ended), is_rerun=True)
        self.start(f"m{number}", READER, selection=chosen)

    def rest(self) -> None:
        """All runs end well, and what has failed is read by a run by hand; the rest starts by itself."""
        is_started = False
        for turn in range(300):
            self.find()
            for run in list(self.state.runs.live.values()):
                if run.open_attempts():
                    self.end(run)
            if not self.state.runs.live and not self.found:
                assert self.due is not None
                if is_started and not self.due.is_due:
                    break
                if not is_started:
                    self.start(f"last{turn}", READER)
                    is_started = f"last{turn}" in self.runs
        else:
            pytest.fail("it never rests")
        newest = {one.partition: one for one in self.shown}
        for one in newest.values():
            assert one in self.read, f"{one} is never read"


def played(seed: int) -> Cluster:
    with replaced(domain, MAX_VERSIONS=FEW), replaced(reads, MAX_PINNED=FEW):
        cluster = Cluster(seed)
        acts: list[tuple[Callable[[], None], int]] = [
            (cluster.publish, 8),
            (cluster.find, 5),
            (cluster.ended, 5),
            (cluster.by_hand, 2),
            (cluster.elect, 1),
        ]
        for _ in range(STEPS):
            (act,) = cluster.rng.choices([act for act, _ in acts], [weight for _, weight in acts])
            act()
        cluster.rest()
    return cluster


def test_each_version_is_read_by_one_success_or_superseded_before() -> None:
    clusters = [played(seed) for seed in range(HISTORIES)]

    assert sum(len(one.read) for one in clusters) > 5 * HISTORIES
    assert sum(run.rerun_of in one.pins for one in clusters for run in one.runs.values()) > HISTORIES / 2
    assert sum(len(pins) == FEW for one in clusters for pins in one.pins.values()) > HISTORIES


def position_moves_when_a_run_ends() -> AbstractContextManager[None]:
    """What a failed run has pinned is never read."""
    original = datasets.with_datasets

    def with_datasets(state: State, decision: Decision) -> Decision:
        succeeded = Decision(
            name="x",
            writes=tuple(
                replace(write, run=replace(write.run, state=RunState.SUCCEEDED))
                if isinstance(write, w.PutRun) and write.run.state.is_final
                else write
                for write in decision.writes
            ),
        )
        more = [write for write in original(state, succeeded).writes if isinstance(write, w.PutDataset)]
        return replace(decision, writes=(*decision.writes, *more))

    return replaced(datasets, with_datasets=with_datasets)


def position_is_kept_in_memory_alone() -> AbstractContextManager[None]:
    """The next leader hands over again what was read."""

    def note_taken(_state: Any, known: Any, run: Run) -> None:
        for name, sequence in reads.taken_by(run):
            known[name].taken[run.pipeline] = domain.Taken(sequence=sequence, run=run.id)

    return replaced(datasets, _note_taken=note_taken)


def rerun_moves_the_position_back() -> AbstractContextManager[None]:
    def note_taken(_state: Any, known: Any, run: Run) -> None:
        for name, sequence in reads.taken_by(run):
            taken = {run.pipeline: domain.Taken(sequence=sequence, run=run.id)}
            known[name] = replace(known[name], taken=taken)

    return replaced(datasets, _note_taken=note_taken)


def newest_are_read_first() -> AbstractContextManager[None]:
    """What is over the bound is older than the position, so no run reads it."""
    original = reads.portion
    return replaced(
        history_lookups, portion=lambda found: original(sorted(found, key=lambda one: -one.sequence))
    )


def rest_is_not_due() -> AbstractContextManager[None]:
    """What is over the bound waits for the next change."""
    return replaced(due, _left=lambda _write, _due: ())


def two_runs_read_at_once() -> AbstractContextManager[None]:
    return replaced(pinning, reads_new=lambda _run: False)


def old_look_up_is_pinned() -> AbstractContextManager[None]:
    """What another run has read since it was looked up is read again."""
    return replaced(pinning, _is_read=lambda _state, _run, _found: False)


def rerun_reads_what_is_new_now() -> AbstractContextManager[None]:
    return replaced(selection, _kept_pins=lambda _run, _selection, _earlier, _chosen: {})


def history_is_not_asked() -> AbstractContextManager[None]:
    """What has left ZooKeeper before it is read is lost."""
    return replaced(Kept, newer_versions=lambda _self, _name, _sequence: iter(()))


MUTANTS = (
    position_moves_when_a_run_ends,
    position_is_kept_in_memory_alone,
    rerun_moves_the_position_back,
    newest_are_read_first,
    rest_is_not_due,
    two_runs_read_at_once,
    old_look_up_is_pinned,
    rerun_reads_what_is_new_now,
    history_is_not_asked,
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_found(mutant: Any) -> None:
    with mutant(), pytest.raises((AssertionError, pytest.fail.Exception)):
        for seed in range(200):
            played(seed)
