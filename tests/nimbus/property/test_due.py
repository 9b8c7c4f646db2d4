"""Starts by data over random histories: the real rules, and leaders that die around transactions.

* What is due is what has changed since its last start, no more and no less; with full lists, no less.
* A run starts only for a target that is due and complete, and while nothing pauses it.
* At rest no target that is due is complete.
* The record is bounded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nimbus.definition import targets
from nimbus.definition.cron import fires_after
from nimbus.definition.intervals import interval_of
from nimbus.definition.targets import KnownLacks, grid_of
from nimbus.domain import writes as w
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Read, Version, interval_text
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, Profile
from nimbus.domain.pipelines.intervals import DataInterval, earlier, gaps
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run
from nimbus.domain.starts import due as domain
from nimbus.domain.starts.due import Due, consumer_of
from nimbus.engine.decision import Decision
from nimbus.engine.rules import due as rule
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant
from tests.nimbus.simulation.mutant import replaced
from tests.thorough import at_most

HISTORIES = at_most(25)
STEPS = 60
NOW = datetime(2026, 3, 27, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")  # clocks change on the 29th
HOUR = timedelta(hours=1)
NAME, FEED, FACTS = PipelineName("report"), DatasetName("feed"), DatasetName("facts")
RELEASE = ReleaseDigest("1" * 64)
SCHEDULES = (
    Schedule(cron="0 */4 * * *", timezone="UTC"),
    Schedule(cron="@daily", timezone="Europe/Berlin"),
    Schedule(cron="@daily", timezone="Europe/Berlin", data_interval=timedelta(hours=6)),
    Schedule(cron="0 */6 * * *", timezone="Europe/Berlin", data_interval=timedelta(days=1)),
)
READS = (
    Read(name="feed", dataset=FEED, starts=True),
    Read(name="feed", dataset=FEED, last=timedelta(days=1, hours=2), starts=True),
    Read(name="feed", dataset=FEED, last=timedelta(hours=3), starts=True),
)


def spec_of(schedule: Schedule, *reads: Read) -> PipelineSpec:
    task = TaskSpec(
        name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", uses=tuple(r.name for r in reads)
    )
    return PipelineSpec(name=NAME, schedule=schedule, start=DataStart(), tasks=(task,), reads=reads)


@dataclass
class History:
    """ZooKeeper, one leader after the other, and what must be due by a look at each fire time."""

    rng: random.Random
    spec: PipelineSpec
    due: Due = field(init=False)
    datasets: dict[DatasetName, Dataset] = field(default_factory=dict)
    live: dict[RunId, Run] = field(default_factory=dict)
    state: State = field(init=False)
    paused: bool = False
    changed: set[datetime] = field(default_factory=set)
    """Fire times that must be due."""
    number: int = 0
    starts: int = 0
    now: datetime = NOW

    def __post_init__(self) -> None:
        found = consumer_of(self.spec, None)
        assert found is not None
        self.due = found
        self.elect()

    @property
    def instant(self) -> Instant:
        return Instant(self.now, 0.0)

    def elect(self) -> None:
        """A new leader reads everything."""
        self.state = State(epoch=1, schema=1)
        self.state.catalog.put_due(NAME, self.due)
        self.state.catalog.datasets = dict(self.datasets)
        for run in self.live.values():
            self.state.runs.put(run, self.instant)

    @property
    def record(self) -> PipelineRecord:
        return PipelineRecord(
            name=NAME,
            state=PipelineState.PAUSED if self.paused else PipelineState.ACTIVE,
            published=RELEASE,
            release=RELEASE,
            profile=Profile(starts_by_data=True, schedule=self.spec.schedule),
            updated_at=NOW,
        )

    @property
    def schedule(self) -> Schedule:
        assert self.spec.schedule is not None
        return self.spec.schedule

    def fires(self) -> Iterator[datetime]:
        end = NOW + timedelta(days=12)
        return takewhile(lambda fire: fire < end, fires_after(self.schedule, NOW - timedelta(days=9)))

    def wanted(self, read: Read, fire: datetime) -> DataInterval:
        if read.last is not None:
            return DataInterval(earlier(fire, read.last, ZoneInfo(self.schedule.timezone)), fire)
        found = interval_of(self.schedule, fire)
        assert found is not None
        return found

    def is_complete(self, fire: datetime) -> bool:
        return all(
            read.dataset in self.datasets
            and not gaps(self.wanted(read, fire), self.datasets[read.dataset].spans)
            for read in self.spec.reads
        )

    # -- what happens

    def publish(self) -> None:
        """Some hours, by a new run, or late by an older one."""
        start = NOW + HOUR * self.rng.randrange(-72, 96)
        interval = DataInterval(start, start + HOUR * self.rng.choice((1, 3, 12, 24)))
        self.number += 1
        number = self.number - self.rng.choice((0, 0, 0, 3))
        version = Version(
            partition=interval_text(interval),
            number=number,
            run=RunId(f"feed-{self.number}"),
            task=TaskName("t"),
            source=AttemptId(RunId(f"feed-{self.number}"), TaskName("t"), 1),
            output="o",
            at=self.now,
        )
        name = self.rng.choice([read.dataset for read in self.spec.reads])
        before = self.state.catalog.datasets.get(name)
        known = before or Dataset(name=name, pipeline=NAME, partition=Partitioning.INTERVAL)
        was = known.version(version.partition)
        after = known.with_version(version, lambda _version: False)
        decision = rule.with_due(
            self.state, Decision(name="x", writes=(w.PutDataset(after, before),)), self.now
        )
        if not self.commit(decision) or (was is not None and was.number > number):
            return
        for read in self.spec.reads:
            if read.dataset == name and read.starts:
                self.changed |= {fire for fire in self.fires() if self.overlaps(read, fire, interval)}

    def overlaps(self, read: Read, fire: datetime, interval: DataInterval) -> bool:
        wanted = self.wanted(read, fire)
        return wanted.start < interval.end and interval.start < wanted.end

    def commit(self, decision: Decision) -> bool:
        """Apply a decision to ZooKeeper, unless the leader dies before; the next one reads it."""
        if self.rng.random() < 0.1:
            self.elect()
            return False
        for write in decision.writes:
            match write:
                case w.PutDataset(dataset, _):
                    self.datasets[dataset.name] = dataset
                case w.PutDue(_, due, before):
                    assert before == self.due
                    assert due is not None
                    self.due = due
                case w.CreateRun(run):
                    self.live[run.id] = run
                    self.started(run)
                case _:
                    pytest.fail(f"an unknown write: {write}")
        if self.rng.random() < 0.2:
            self.elect()
        else:
            self.state.apply(decision, self.instant)
        return True

    def started(self, run: Run) -> None:
        self.starts += 1
        assert not self.paused, "started while paused"
        assert len(self.live) == 1, "two at once"
        assert run.logical_date in self.may_start(), "started without a change"
        assert self.is_complete(run.logical_date), "started with a gap"
        self.changed.discard(run.logical_date)

    def may_start(self) -> set[datetime]:
        return self.changed

    def start(self) -> bool:
        """Ask the rule once."""
        answer = rule.start_by_data(self.state, self.record, self.now)
        if not isinstance(answer, Decision):
            if not self.live and not self.paused:
                waits = any(self.is_complete(fire) for fire in self.due_now() if fire <= self.now)
                assert not waits, "a complete target is not looked at"
            return False
        self.commit(answer)
        return True

    def end(self) -> None:
        """The runs that are under way end, well or not."""
        self.live.clear()
        self.elect()

    def check(self) -> None:
        fires = {fire for fire in self.fires() if self.holds(fire)}
        assert fires == self.changed, "what is due is not what has changed"

    def holds(self, fire: datetime) -> bool:
        grid = grid_of(self.schedule, fire)
        assert grid is not None
        return not gaps(grid, self.due.extents)

    def rest(self) -> None:
        """Let it start all that it can."""
        self.paused = False
        for _ in range(2000):
            self.end()
            if not self.start() and not self.start():
                break
        else:
            pytest.fail("it starts for ever")
        assert not any(map(self.is_complete, self.due_now())), "a complete target has not started"

    def due_now(self) -> set[datetime]:
        return self.changed


def built_at_once(_state: State, _subject: Any, draft: Draft, parent: None = None) -> Run:
    return new_run(SPECS[draft.pipeline], draft)


SPECS: dict[PipelineName, PipelineSpec] = {}


def play(seed: int, history: type[History] = History) -> History:
    rng = random.Random(seed)
    reads = [rng.choice(READS)]
    if rng.random() < 0.5:
        reads.append(Read(name="facts", dataset=FACTS, starts=rng.random() < 0.5))
    played = history(rng, spec_of(rng.choice(SCHEDULES), *reads))
    SPECS[NAME] = played.spec
    with replaced(rule, built=built_at_once):
        for _ in range(STEPS):
            played.now += HOUR / 4
            rng.choice((played.publish, played.publish, played.start, played.end, played.elect))()
            played.paused ^= rng.random() < 0.05
            played.check()
        played.rest()
    return played


def test_what_is_due_starts_once_when_it_is_complete() -> None:
    starts = sum(play(seed).starts for seed in range(HISTORIES))

    assert starts > HISTORIES


class Full(History):
    """With room for two extents: targets between those that changed may start, too."""

    def check(self) -> None:
        assert len(self.due.extents) <= domain.MAX_EXTENTS
        assert all(map(self.holds, self.changed)), "a change is lost"

    def may_start(self) -> set[datetime]:
        return {fire for fire in self.fires() if self.was_due(fire)}

    def was_due(self, fire: datetime) -> bool:
        grid = grid_of(self.schedule, fire)
        assert grid is not None
        return not gaps(grid, self.state.catalog.due[NAME].extents)

    def due_now(self) -> set[datetime]:
        """Only those at the ends of extents: a start of others would need one more."""
        return set()


def test_full_record_loses_no_change_and_does_not_start_for_ever() -> None:
    with replaced(domain, MAX_EXTENTS=2):
        starts = sum(play(seed, Full).starts for seed in range(HISTORIES))

    assert starts > HISTORIES


def kept_when_started() -> AbstractContextManager[None]:
    return replaced(Due, without=lambda self, _target: self)


def gaps_ignored() -> AbstractContextManager[None]:
    return replaced(targets, _lacking=lambda _due, _target, _datasets: None)


def all_changes_count() -> AbstractContextManager[None]:
    """A version that is superseded, or did not change, starts its readers."""
    return replaced(rule, changes=lambda dataset, _before: dataset.versions)


def newest_target_alone() -> AbstractContextManager[None]:
    """Dagster 22802: an old partition changes, and the newest one starts."""
    return replaced(rule, _targets=lambda _read, schedule, cause: rule.newest(schedule, cause.at))


def first_target_alone() -> AbstractContextManager[None]:
    """A backfill in progress hides what is complete behind its gap."""

    def due_targets(*args: Any) -> list[targets.DueTarget]:
        return list(targets.due_targets(*args))[:1]

    return replaced(rule, due_targets=due_targets)


def room_is_not_asked() -> AbstractContextManager[None]:
    return replaced(rule, has_room=lambda _live, _profile: True)


def reads_of_days_before_do_not_count() -> AbstractContextManager[None]:
    """A run reads a week, and a change of the days before its own starts nothing."""
    original = targets.last_reader

    def last_reader(read: Read, schedule: Schedule, end: datetime) -> datetime | None:
        return original(replace(read, last=None), schedule, end)

    return replaced(targets, last_reader=last_reader)


def start_of_one_target_drops_the_others() -> AbstractContextManager[None]:
    """Dagster 32853: four partitions change, and the last one alone starts."""
    return replaced(Due, without=lambda self, _target: self.dropped())


def nothing_has_changed_since_a_look() -> AbstractContextManager[None]:
    """A target that lacked something is never looked at again."""
    return replaced(rule, changed_since=lambda _before, _facts: ())


def only_what_became_due_since_is_looked_at() -> AbstractContextManager[None]:
    """What was missing is published, and the target that waited for it does not start."""

    def changed_since(before: KnownLacks, now: KnownLacks) -> Any:
        return targets.changed_since(replace(before, known=now.known), now)

    return replaced(rule, changed_since=changed_since)


MUTANTS = (
    nothing_has_changed_since_a_look,
    only_what_became_due_since_is_looked_at,
    start_of_one_target_drops_the_others,
    kept_when_started,
    gaps_ignored,
    all_changes_count,
    newest_target_alone,
    first_target_alone,
    room_is_not_asked,
    reads_of_days_before_do_not_count,
)


RAREST = 44
"""The first history that shows the mutants which few histories show; most show the others."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_found(mutant: Any) -> None:
    with mutant(), pytest.raises((AssertionError, pytest.fail.Exception)):
        for seed in range(RAREST, RAREST + 100):
            play(seed)
