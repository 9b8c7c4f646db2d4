"""The laws of datasets over random histories: the real rules, and leaders that die around transactions.

* Each success publishes one version, which ZooKeeper or history has from then on.
* A partition shows the version of its newest run; no older one comes back.
* What ZooKeeper keeps is bounded by what history does not have yet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest

from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import End
from nimbus.domain.data import datasets
from nimbus.domain.data.datasets import Dataset, versions_of
from nimbus.domain.data.publications import Partitioning, Publication, interval_in, interval_text
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.intervals import DataInterval, with_span
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs import lifecycle, run_number
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.engine.decision import Decision
from nimbus.engine.rules import datasets as rule
from nimbus.engine.rules import run_starts
from nimbus.engine.state import State
from nimbus.engine.state.runs import Runs
from nimbus.engine.work_queue import Instant
from tests.nimbus.simulation.mutant import replaced
from tests.thorough import at_most

HISTORIES = at_most(150)
STEPS = 150
KEPT = 2
"""Versions that a dataset keeps in ZooKeeper, in these histories."""
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WORKER = WorkerId("w")
PIPELINES = {
    PipelineName("days"): Publication(dataset=DatasetName("days"), partition=Partitioning.INTERVAL),
    PipelineName("keys"): Publication(dataset=DatasetName("keys"), partition=Partitioning.KEY),
    PipelineName("whole"): Publication(dataset=DatasetName("whole")),
}


@dataclass
class History:
    """ZooKeeper, history, and one leader after the other."""

    rng: random.Random
    runs: dict[RunId, Run] = field(default_factory=dict)
    datasets: dict[DatasetName, Dataset] = field(default_factory=dict)
    archived: dict[tuple[DatasetName, str], int] = field(default_factory=dict)
    """The largest number of each partition in history."""
    created: list[RunId] = field(default_factory=list)
    expected: dict[tuple[DatasetName, str], RunId] = field(default_factory=dict)
    published: int = 0
    newest_number: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.unread: list[Run] = []
        self.elect()

    # -- leaders

    def elect(self) -> None:
        """Another leader begins, and reads the runs bit by bit."""
        self.epoch += 1
        self._read(None)

    def read_again(self) -> None:
        """The same leader does not know what became of a transaction."""
        self._read(self.state)

    def _read(self, before: State | None) -> None:
        self.state = State(epoch=self.epoch, schema=1)
        if before is not None:
            self.state.keep_from(before)
        self.state.catalog.datasets = dict(self.datasets)
        self.unread = self.rng.sample(list(self.runs.values()), len(self.runs))
        self.read_on()

    def read_on(self) -> None:
        """Read some more runs; after the last one, decide about everything."""
        for _ in range(self.rng.randint(0, 3)):
            if self.unread:
                self.state.runs.put(self.unread.pop(), _now())
        if not self.unread and not self.state.is_loaded:
            self.state.finish_loading()

    # -- what happens

    def create(self) -> None:
        """A run begins: of a new date, or again of an old one."""
        if not self.state.is_loaded:
            return
        pipeline = self.rng.choice(list(PIPELINES))
        run = _run(RunId(f"r{len(self.created)}"), pipeline, self.rng.randint(0, 4))
        self._decide(Decision(name="created", writes=(w.CreateRun(run),)))

    def succeed(self) -> None:
        """A task of a run that the leader has read succeeds."""
        live = [run for run in self.state.runs.live.values() if run.open_attempts()]
        if live:
            before = live[-1] if self.rng.random() < 0.7 else self.rng.choice(live)  # some are slow
            attempt = self.rng.choice(before.open_attempts())
            end = End(
                attempt=str(attempt),
                outcome=self.rng.choice([Outcome.SUCCEEDED] * 4 + [Outcome.FAILED]),
                written_by="runner",
                ended_at=NOW,
                output="x",
            )
            run = lifecycle.close_attempt(before, attempt, end, max_infrastructure_failures=1, now=NOW)
            self._decide(Decision(name="closed", writes=(w.PutRun(run, before),)))

    def archive(self) -> None:
        """A finished run moves to history."""
        finished = [run for run in self.runs.values() if run.state.is_final]
        if finished and self.state.is_loaded:
            run = self.rng.choice(finished)
            for publication, version in versions_of(run):
                key = publication.dataset, version.partition
                self.archived[key] = max(self.archived.get(key, 0), version.number)
            self._decide(Decision(name="dropped", writes=(w.RemoveRun(run.id),)))

    def _decide(self, decision: Decision) -> None:
        decision = rule.with_datasets(self.state, run_starts.with_numbers(self.state, decision))
        fate = self.rng.random()
        if fate < 0.02:  # it dies before the transaction
            self.elect()
            return
        for write in decision.writes:
            self._write(write)
        if fate < 0.04:  # after it
            self.elect()
        elif fate < 0.08:  # the reply is lost
            self.read_again()
        else:
            self.state.apply(decision, _now())

    def _write(self, write: w.Write) -> None:
        match write:
            case w.CreateRun(run):
                assert run.number > self.newest_number, f"{run.id} has number {run.number}"
                self.newest_number = run.number
                self.created.append(run.id)
                self.runs[run.id] = run
            case w.PutRun(run, before):
                was = {version.task for _, version in versions_of(before)}
                for publication, version in versions_of(run):
                    if version.task not in was:
                        key = publication.dataset, version.partition
                        self.published += 1
                        places = (self.created.index(run.id), self._place(key))
                        if places[0] >= places[1]:
                            self.expected[key] = run.id
                self.runs[run.id] = run
            case w.RemoveRun(run_id):
                del self.runs[run_id]
            case w.PutDataset(dataset, before):
                assert before == self.datasets.get(dataset.name)
                self._check_bound(dataset)
                self.datasets[dataset.name] = dataset

    def _check_bound(self, dataset: Dataset) -> None:
        of_pipeline = [run for run in self.runs.values() if run.pipeline == dataset.pipeline]
        oldest = min(run.number for run in of_pipeline)
        waiting = sum(one.run in self.runs or one.number > oldest for one in dataset.versions)
        assert self.unread or len(dataset.versions) <= KEPT + waiting, "too much is kept"

    def _place(self, key: tuple[DatasetName, str]) -> int:
        return self.created.index(self.expected[key]) if key in self.expected else -1

    # -- laws

    def check(self) -> None:
        """The laws, after a step."""
        assert sum(dataset.published for dataset in self.datasets.values()) == self.published
        for (name, partition), run in self.expected.items():
            version = self.datasets[name].version(partition)
            if version is None:
                newest = self.archived.get((name, partition))
                assert newest is not None, f"{name} {partition} of {run} is lost"
            else:
                assert version.run == run, f"{name} {partition} is of {version.run}, and not of {run}"
        for dataset in self.datasets.values():
            partitions = {partition for name, partition in self.expected if name == dataset.name}
            if dataset.partition is Partitioning.INTERVAL:
                assert dataset.spans == reduce(with_span, map(_interval, partitions), ())


def _interval(partition: str) -> DataInterval:
    found = interval_in(partition)
    assert found is not None
    assert interval_text(found) == partition
    return found


def _now() -> Instant:
    return Instant(NOW, 0.0)


def _run(run_id: RunId, pipeline: PipelineName, partition: int) -> Run:
    publication = PIPELINES[pipeline]
    if publication.partition is Partitioning.KEY:
        publication = replace(publication, key=f"k{partition}")
    spec = TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", publishes=(publication,))
    start = NOW + partition * DAY
    run = Run(
        id=run_id,
        pipeline=pipeline,
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=start,
        created_at=NOW,
        cause=RunCause.SCHEDULE,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        data_interval=DataInterval(start=start, end=start + DAY),
        tasks=Tasks([TaskRun(spec=spec), TaskRun(spec=replace(spec, name=TaskName("other"), publishes=()))]),
    )
    begun = lifecycle.begin(lifecycle.started(run, NOW), NOW)
    for task in begun.tasks:
        begun = lifecycle.open_attempt(begun, task, worker=WORKER, epoch=1, now=NOW)
    return begun


def broken(histories: int, seed: int = 0) -> str:
    """The first law that a history breaks; empty: none breaks one."""
    with replaced(datasets, MAX_VERSIONS=KEPT):
        for number in range(histories):
            history = History(random.Random(f"{seed}-{number}"))
            acts: list[tuple[Callable[[], None], int]] = [
                (history.create, 6),
                (history.succeed, 8),
                (history.archive, 6),
                (history.read_on, 3),
            ]
            for _ in range(STEPS):
                (act,) = history.rng.choices([act for act, _ in acts], [weight for _, weight in acts])
                try:
                    act()
                    history.check()
                except AssertionError as exc:
                    return f"history {number}: {exc}"
    return ""


def test_random_histories_break_no_law() -> None:
    assert broken(HISTORIES) == ""


def test_histories_meet_what_the_laws_are_about() -> None:
    history = History(random.Random(1))
    with replaced(datasets, MAX_VERSIONS=KEPT):
        for _ in range(400):
            history.rng.choice([history.create, history.succeed, history.archive, history.read_on])()

    left = [key for key in history.expected if history.datasets[key[0]].version(key[1]) is None]
    assert len(left) > 1
    assert history.epoch > 5


def _with_version(**changed: Any) -> AbstractContextManager[None]:
    original = Dataset.with_version

    def with_version(self: Dataset, version: Any, may_drop: Any) -> Dataset:
        versions = changed.get("versions", lambda one: one)(self.versions)
        drop = changed.get("may_drop", lambda one: one)(may_drop)
        return original(replace(self, versions=versions), version, drop)

    return replaced(Dataset, with_version=with_version)


def _of_unread_runs() -> AbstractContextManager[None]:
    original = rule._after

    def after(state: State, *args: Any) -> Dataset:
        read, state.runs.read = state.runs.read, None
        try:
            return original(state, *args)
        finally:
            state.runs.read = read

    return replaced(rule, _after=after)


def _all_again() -> AbstractContextManager[None]:
    def published(run: Run, _before: Run) -> Iterator[Any]:
        yield from versions_of(run)

    return replaced(rule, _published=published)


def _only_of_the_decision() -> AbstractContextManager[None]:
    def keep_from(self: Runs, before: Runs) -> None:
        self.finished = dict(before.finished)

    return replaced(Runs, keep_from=keep_from)


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "the last one to end wins": lambda: _with_version(
        versions=lambda versions: tuple(replace(one, number=0) for one in versions)
    ),
    "runs are counted without the epoch": lambda: replaced(
        run_starts, next_number=lambda _epoch, newest: run_number.next_number(0, newest)
    ),
    "a version leaves before history has it": lambda: _with_version(may_drop=lambda _: lambda _: True),
    "a version leaves while an older run may publish": lambda: _with_version(
        may_drop=lambda may_drop: lambda other: may_drop(replace(other, number=0))
    ),
    "a new leader drops versions of runs that it has not read": _of_unread_runs,
    "a success publishes with each change of its run": _all_again,
    "numbers are given again after a lost reply": _only_of_the_decision,
    "nothing ever leaves": lambda: _with_version(may_drop=lambda _: lambda _: False),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_laws_find_a_mutant(name: str) -> None:
    with MUTANTS[name]():
        assert broken(300) != ""
