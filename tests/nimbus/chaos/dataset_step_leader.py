"""A leader that kills its process at one step of publishing and reading: see `test_dataset_step_kills`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from leader import Leadership
from leader.sentinel.sentinel import CrashSentinel
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.domain import writes as w
from nimbus.domain.data.publications import Partitioning, Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    Concurrency,
    DataStart,
    PipelineSpec,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.engine.decision import FindVersions
from nimbus.engine.events import VersionsFound
from nimbus.engine.history_lookups import found_versions
from nimbus.engine.policy import Policy
from nimbus.ports import History, LeaderStore
from tests.benchmark.engine.engine_role import EngineRole
from tests.benchmark.engine.shapes import run_built
from tests.nimbus.chaos.forked_leaders import Notes
from tests.nimbus.leader_writes import RecordedTransaction

NUMBERS = DatasetName("numbers")
SOURCE = PipelineSpec(
    name=PipelineName("source"),
    tasks=(
        TaskSpec(
            name=TaskName("make-f0"),
            kind=TaskKind.PYTHON,
            script="make.py",
            publishes=(Publication(dataset=NUMBERS, partition=Partitioning.INTERVAL),),
        ),
    ),
)
SINK = PipelineSpec(
    name=PipelineName("sink"),
    schedule=Schedule(cron="0 0 * * *", timezone="UTC"),
    start=DataStart(),
    concurrency=Concurrency(limit=1),
    reads=(
        Read(name="numbers", dataset=NUMBERS, starts=True),
        Read(name="news", dataset=NUMBERS, new=True),
    ),
    tasks=(
        TaskSpec(name=TaskName("use-f0"), kind=TaskKind.PYTHON, script="use.py", uses=("numbers", "news")),
    ),
)
RELEASES = {
    ReleaseOf(SOURCE.name, ReleaseDigest("1" * 64)): SOURCE,
    ReleaseOf(SINK.name, ReleaseDigest("2" * 64)): SINK,
}
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
LOOK_UP = "during the look-up of versions"
_COMMITS = ("version", "start", "pin", "pin of what is new", "order of the reader", "end of the reader")
POINTS = (*(f"{when} the {what} is committed" for what in _COMMITS for when in ("before", "after")), LOOK_UP)
"""Points at which a leader dies."""


class Doom:
    """Kills the process at one point, when it concerns one round."""

    def __init__(self, number: int, at: str, notes: Notes) -> None:
        self._runs, self._at, self._notes = {source_of(number), sink_of(number)}, at, notes
        self._leader = leader_of(number)

    def pass_by(self, point: str, run: RunId) -> None:
        """Called when the leader reaches a point with a run."""
        if point == self._at and run in self._runs:
            self._notes.die(self._leader, self._at)


class DoomedTransaction(RecordedTransaction):
    """A transaction that may kill the leader before it is sent, and after its answer."""

    doom: Doom

    def commit(self) -> None:
        steps = list(_steps(self.writes))
        for what, run in steps:
            self.doom.pass_by(f"before the {what} is committed", run)
        super().commit()
        for what, run in steps:
            self.doom.pass_by(f"after the {what} is committed", run)


def _steps(writes: Sequence[w.Write]) -> Iterator[tuple[str, RunId]]:
    for write in writes:
        match write:
            case w.PutDataset(dataset, before) if before and before.taken != dataset.taken:
                yield "end of the reader", dataset.taken[SINK.name].run
            case w.PutDataset(dataset):
                assert dataset.newest is not None
                yield "version", dataset.newest.run
            case w.CreateRun(run) if run.pipeline == SINK.name:
                yield "start", run.id
            case w.PutRun(run, before) if run.pins and not before.pins:
                yield "pin", run.id
            case w.PutRun(run, before) if "news" in run.pins.keys() - before.pins.keys():
                yield "pin of what is new", run.id
            case w.CreateAttempt(attempt) if attempt.run.startswith(SINK.name):
                yield "order of the reader", attempt.run
            case _:
                pass


class DoomedStore(TreeLeaderStore):
    """A store whose transactions may kill the leader."""

    doom: Doom

    def begin(self) -> RecordedTransaction:
        made = DoomedTransaction(self._write, self._operations)
        made.doom = self.doom
        return made


class DoomedRole(EngineRole):
    """Leads until it kills itself. The crash sentinel ends its session at once."""

    def __init__(self, hosts: str, root: str, name: str, doom: Doom) -> None:
        self._doom = doom
        super().__init__(hosts, root, name, Policy(), timedelta(seconds=60))
        self._specs = {release.digest: spec for release, spec in RELEASES.items()}

    def _store(self, leadership: Leadership) -> LeaderStore:
        store = DoomedStore(calls_on(self.session), self._root, leadership.token)
        store.doom = self._doom
        return store

    def _build(self, effect: Any) -> None:
        self.engine.enqueue(run_built(effect, self._specs))  # no templates in it

    def _effect(self, effect: Any) -> None:
        if isinstance(effect, FindVersions):
            self._doom.pass_by(LOOK_UP, effect.run.id)
            found = found_versions(effect.asked, cast(History, None), lambda _read: ())  # ZooKeeper has all
            self.engine.enqueue(VersionsFound(effect.run.id, effect.task, found))
        else:
            super()._effect(effect)


def leader_of(number: int) -> str:
    """The name of the leader that dies in a round."""
    return f"leader-of-{number}"


def day(number: int) -> DataInterval:
    """The data interval of a round."""
    start = _FIRST + timedelta(days=number)
    return DataInterval(start=start, end=start + timedelta(days=1))


def source_of(number: int) -> RunId:
    """The run of a round that publishes."""
    return RunId(f"{SOURCE.name}-{number}")


def sink_of(number: int) -> RunId:
    """The run that this starts: each day has one, and the consumer counts them all."""
    return RunId(f"{SINK.name}-{day(number).end:%Y%m%dt%H%M%Sz}-{number + 1}")


def lead(*, hosts: str, root: str, number: int, at: str, notes: str) -> None:
    """Queue for the lead; die at the point `at` of a round."""
    role = DoomedRole(hosts, root, leader_of(number), Doom(number, at, Notes(Path(notes))))
    CrashSentinel(role.session).start()
    role.election.add_to_leader_lock_queue()
