"""Kills the leader (SIGKILL) at each step from a task's success to the run that reads what it published.

The leaders have the real engine, election, store and crash sentinel on a real ZooKeeper; the worker is
simulated. In memory, with every other fault: `tests/nimbus/simulation`. Whole clusters at random moments:
`test_chaos_smoke.py`.

NIMBUS_DATASET_KILLS: kills at each point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.adapters.store.paths import Paths
from nimbus.domain.commands import Command, PublishRelease, StartRun
from nimbus.domain.data.publications import interval_text
from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import RunState
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.engine.simulated_workers import SimulatedWorkers
from tests.nimbus.chaos.dataset_step_leader import (
    NUMBERS,
    POINTS,
    RELEASES,
    SINK,
    SOURCE,
    day,
    leader_of,
    sink_of,
    source_of,
)
from tests.nimbus.chaos.forked_leaders import ForkedLeaders, Notes, wait
from tests.nimbus.chaos.txnlog import read_log
from tests.nimbus.outcomes import await_outcome
from tests.report import number_from, say
from tests.thorough import thorough

KILLS = number_from("NIMBUS_DATASET_KILLS", 20)
LONG = timedelta(seconds=60)
_RUN_DEPTH = Paths("/kills").run(RunId("run")).count("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The result of one kill."""

    at: str
    pinned: bool
    """True if the reader pinned the version of its round alone, by its day and as what is new."""
    attempts: int
    """How many attempts of the reader were ordered."""

    @property
    def passed(self) -> bool:
        """Whether the version was read once."""
        return self.pinned and self.attempts == 1


@pytest.mark.chaos
@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=thorough)])
@pytest.mark.timeout(3600)
def test_version_is_published_and_read_once_when_its_leader_is_killed_at_each_step(
    tmp_path: Path, own_zookeeper: ZooKeeperServer, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    with stage(tmp_path, own_zookeeper.hosts, "/kills") as on:
        for number, at in enumerate([*POINTS * kills, ""]):  # the last leader is not killed
            on.start(number, at)
            if number:
                found.append(on.result(number - 1, POINTS[(number - 1) % len(POINTS)]))
            if at:
                on.kill(number, at)
    say(capsys, table(found))
    assert [kill for kill in found if not kill.passed] == []
    log = read_log(own_zookeeper.data_dir / "data" / "version-2")
    operations = [part for transaction in log if transaction.is_committed for part in transaction.operations]
    written = Counter(part.path for part in operations if part.kind in ("create", "setData"))
    paths = Paths("/kills")
    assert len(found) == len(POINTS) * kills
    assert written[paths.dataset(NUMBERS)] == 2 * len(found)  # with each version, and each end of its reader
    runs = [part.path for part in operations if part.kind == "create" and part.path.count("/") == _RUN_DEPTH]
    started = [path for path in runs if path.startswith(paths.run(RunId(SINK.name)))]
    assert len(started) == len(found)


class Stage:
    """A cluster whose leaders die, each in a round of its own: a source publishes, a sink reads."""

    def __init__(
        self, hosts: str, session: ZooKeeperSession, root: str, notes: Notes, leaders: ForkedLeaders
    ) -> None:
        self._hosts, self._root, self._notes, self._leaders = hosts, root, notes, leaders
        self._queue = TreeCommandQueue(calls_on(session), root)
        self._reader = TreeClusterReader(calls_on(session), root)

    def start(self, number: int, at: str) -> None:
        """Start the leader that dies in a round."""
        self._leaders.start(
            hosts=self._hosts, root=self._root, number=number, at=at, notes=str(self._notes.file)
        )

    def kill(self, number: int, at: str) -> None:
        """Start the run of a round that publishes, and wait until the leader is dead."""
        if self._reader.pipeline(SINK.name) is None:
            for release in RELEASES:
                self._ask(PublishRelease(pipeline=release.pipeline, digest=release.digest, activate=True))
        self._ask(StartRun(pipeline=SOURCE.name, run_id=source_of(number), data_interval=day(number)))
        death = {"leader": leader_of(number), "killed": at}
        self._notes.wait_for(str(death), lambda lines: death in lines)

    def result(self, number: int, at: str) -> Kill:
        """Wait until the runs of a round have succeeded."""
        source, sink = source_of(number), sink_of(number)
        wait(lambda: self._succeeded(source) and self._succeeded(sink), f"{source} and {sink} succeed")
        run = self._reader.run(sink)
        assert run is not None
        pins = [[(one.partition, one.run) for one in run.pins[name]] for name in ("numbers", "news")]
        attempts = sum(len(task.attempts) for task in run.tasks.in_order())
        return Kill(at=at, pinned=pins == [[(interval_text(day(number)), source)]] * 2, attempts=attempts)

    def _succeeded(self, run_id: RunId) -> bool:
        run = self._reader.run(run_id)
        return run is not None and run.state is RunState.SUCCEEDED

    def _ask(self, command: Command) -> None:
        outcome = await_outcome(self._queue, self._queue.submit(command, submitted_by="test"), LONG)
        if outcome is not None:  # the leader may die before it has written the next one
            assert outcome.accepted, outcome.message


@contextmanager
def stage(folder: Path, hosts: str, root: str) -> Iterator[Stage]:
    """The servers that a leader needs."""
    notes = Notes(folder / "notes.jsonl")
    notes.file.touch()
    with ExitStack() as opened:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=LONG))
        session.start(LONG)
        opened.callback(session.close, LONG)
        workers = opened.enter_context(closing(SimulatedWorkers(session, root)))
        workers.register("w", 1, 4, holding=False)
        leaders = ForkedLeaders("tests.nimbus.chaos.dataset_step_leader", folder / "leaders.log")
        yield Stage(hosts, session, root, notes, opened.enter_context(closing(leaders)))


def table(kills: Sequence[Kill]) -> list[str]:
    """One line for each point."""
    lines = ["| the leader is killed | kills | lost or doubled |", "|" + " --- |" * 3]
    for at in POINTS:
        own = [kill for kill in kills if kill.at == at]
        lines.append(f"| {at} | {len(own)} | {sum(not kill.passed for kill in own)} |")
    return lines
