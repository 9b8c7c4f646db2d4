"""Every type of command, with the leader killed (SIGKILL) at each of its steps: executed once, never lost.

The leaders have the real engine, election, store and crash sentinel on a real ZooKeeper. A leader dies at a
step of its takeover, while the command waits, or at a step after it has read the command. In memory, with
more leaders: `tests/nimbus/property/test_command_kills.py`. A whole cluster at random moments:
`test_command_kills.py`.

NIMBUS_COMMAND_KILLS: minimum number of kills for each type. NIMBUS_COMMAND_KILLS_RECORD: a file to which
deaths are appended; deaths that it already contains are not repeated.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus import records
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import (
    TreeClusterReader,
    TreeCommandQueue,
    TreeRegistrations,
)
from nimbus.adapters.store.paths import Paths
from nimbus.domain.attempts.slots import End
from nimbus.domain.commands import Command, CommandOutcome, PublishRelease
from nimbus.domain.ids import CommandId
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.nimbus.chaos.forked_leaders import ForkedLeaders, Notes, wait
from tests.nimbus.chaos.txnlog import read_log
from tests.nimbus.command_cases import CASES, FIRST, RUN, SPEC, Case, P
from tests.nimbus.definitions import digest_of
from tests.nimbus.engine_bench import WORKER
from tests.nimbus.outcomes import await_outcome
from tests.report import append, number_from, say
from tests.thorough import thorough

KILLS = number_from("NIMBUS_COMMAND_KILLS", 20)
RECORD = "NIMBUS_COMMAND_KILLS_RECORD"
LONG = timedelta(seconds=60)
TAKEOVER, TURN = "takeover", "turn"
"""Whose steps are counted: a leader that finds the command, or one that is notified of it."""


At = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A command, some deaths of leaders at one step, and the result."""

    command: str
    steps_of: str
    leaders: int
    """Number of leaders that may die."""
    step: int
    killed: list[str]
    """The steps at which they died."""
    accepted: bool
    consumed: int
    """Number of transactions that consumed the command."""
    done: list[int]
    """For each transaction that executed or consumed the command: how often it executed it."""
    took_s: float

    @property
    def at(self) -> At:
        """Distinguishes it from other plays of the command."""
        return self.steps_of, self.leaders, self.step

    @property
    def passed(self) -> bool:
        """Whether it was executed once, in the transaction that consumed it."""
        return self.accepted and self.consumed == 1 and self.done == [1]


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("name", "kills", "what"),
    [
        *((name, 1, (TURN,)) for name in ("start", "stop")),
        *(pytest.param(name, KILLS, (TURN, TAKEOVER), marks=thorough) for name in CASES),
    ],
)
@pytest.mark.timeout(1800)
def test_command_is_done_once_when_its_leader_is_killed_at_each_step(
    tmp_path: Path,
    own_zookeeper: ZooKeeperServer,
    name: str,
    kills: int,
    what: Sequence[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = os.environ.get(RECORD) if TAKEOVER in what else None
    record = Path(kept) if kept else tmp_path / "plays.jsonl"
    found = {play.at: play for play in read(record) if play.command == name}
    with stage(tmp_path, own_zookeeper.hosts, "/kills") as on:
        for at in steps(found, what, kills):
            if at not in found:
                found[at] = on.play(name, *at)
                append(record, found[at])
    say(capsys, table(found.values()))
    assert [play for play in found.values() if not play.passed] == []
    check_log(own_zookeeper.data_dir, on.asked)


def steps(found: Mapping[At, Play], what: Sequence[str], kills: int) -> Iterator[At]:
    """Each step at which one leader can die, then steps for more leaders until there are enough kills."""
    for leaders in count(1):
        for steps_of in what:
            for step in count(1):
                if leaders > 1 and sum(len(play.killed) for play in found.values()) >= kills:
                    return
                yield steps_of, leaders, step
                if not found[steps_of, leaders, step].killed:
                    break


class Stage:
    """Clusters whose leaders die; each play has its own cluster."""

    def __init__(
        self, hosts: str, session: ZooKeeperSession, root: str, folder: Path, leaders: ForkedLeaders
    ) -> None:
        self._hosts, self._session, self._root = hosts, session, root
        self._folder, self._leaders = folder, leaders
        self.asked: list[tuple[Paths, CommandId]] = []
        """Commands of all plays."""

    def play(self, name: str, steps_of: str, leaders: int, step: int) -> Play:
        """Execute a command with leaders that die."""
        began = time.monotonic()
        cluster = f"{name}-{steps_of}-{leaders}-{step}"
        paths = Paths(f"{self._root}/{cluster}")
        notes = Notes(self._folder / f"{cluster}.jsonl")
        notes.file.touch()
        starts = count()

        def start(step: int, *, from_birth: bool = True) -> tuple[str, int]:
            leader = f"leader-{next(starts)}"
            pid = self._leaders.start(
                hosts=self._hosts, root=paths.root, name=leader, case=name, step=step, from_birth=from_birth,
                notes=str(notes.file),
            )  # fmt: skip
            return leader, pid

        queue = TreeCommandQueue(calls_on(self._session), paths.root)
        leader, pid = start(step if steps_of == TURN else 0, from_birth=False)
        self._prepare(CASES[name], paths, queue)
        if steps_of == TAKEOVER:
            os.kill(pid, signal.SIGKILL)
        command = queue.submit(CASES[name].command, submitted_by="ann", if_match=CASES[name].if_match)
        self.asked.append((paths, command))
        if steps_of == TAKEOVER:
            leader, pid = start(step)
        killed: list[str] = []
        while (at := self._fate(notes, leader)) is not None:
            killed.append(at)
            leader, pid = start(step if len(killed) < leaders and not consumed(notes) else 0)
        outcome = await_outcome(queue, command, LONG)
        os.kill(pid, signal.SIGKILL)
        lines = [line for line in notes.all() if "done" in line]
        return Play(
            command=name,
            steps_of=steps_of,
            leaders=leaders,
            step=step,
            killed=killed,
            accepted=outcome is not None and outcome.code == "ok",
            consumed=sum(line["consumed"] for line in lines),
            done=[line["done"] for line in lines],
            took_s=round(time.monotonic() - began, 2),
        )

    def _prepare(self, case: Case, paths: Paths, queue: TreeCommandQueue) -> None:
        """Create the situation of a case."""
        worker = replace(WORKER, newest_schema=records.SCHEMA, started_at=datetime.now(UTC))
        TreeRegistrations(calls_on(self._session), paths.root).publish_worker(worker)
        ask(queue, PublishRelease(pipeline=P, digest=digest_of(SPEC), activate=True))
        for command in case.before:
            ask(queue, command)
        if case.failed:
            client, reader = self._session.client, TreeClusterReader(calls_on(self._session), paths.root)
            wait(lambda: client.exists(paths.attempt(FIRST)))
            now = datetime.now(UTC)
            end = End(
                attempt=str(FIRST), outcome=Outcome.FAILED, written_by="test", started_at=now, ended_at=now
            )
            client.create(paths.end(FIRST), records.END.encode(end))
            wait(lambda: (run := reader.run(RUN)) is not None and not run.open_attempts())

    def _fate(self, notes: Notes, leader: str) -> str | None:
        """Wait until a leader has died or finished its part. Returns the step at which it died."""
        killed: list[str] = []

        def decided() -> bool:
            own = [line for line in notes.all() if line["leader"] == leader]
            killed[:] = [line["killed"] for line in own if "killed" in line]
            over = any("over" in line for line in own)
            late = consumed(notes) and not any("consumed" in line for line in own)
            return bool(killed) or over or (late and any("leads" in line for line in own))

        wait(decided)
        return killed[0] if killed else None


def consumed(notes: Notes) -> bool:
    """Whether the command was consumed."""
    return any(line.get("consumed") for line in notes.all())


def ask(queue: TreeCommandQueue, command: Command) -> CommandOutcome:
    outcome = await_outcome(queue, queue.submit(command, submitted_by="ann"), LONG)
    assert outcome is not None
    assert outcome.accepted, outcome.message
    return outcome


@contextmanager
def stage(folder: Path, hosts: str, root: str) -> Iterator[Stage]:
    """The servers that leaders need."""
    with ExitStack() as opened:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=LONG))
        session.start(LONG)
        opened.callback(session.close, LONG)
        leaders = ForkedLeaders("tests.nimbus.chaos.command_step_leader", folder / "leaders.log")
        yield Stage(hosts, session, root, folder, opened.enter_context(closing(leaders)))


def check_log(zookeeper: Path, asked: Sequence[tuple[Paths, CommandId]]) -> None:
    """Check in the server's own log that each command was removed once, and has one outcome."""
    found: defaultdict[str, int] = defaultdict(int)
    for transaction in read_log(zookeeper / "data" / "version-2"):
        if transaction.is_committed:
            for operation in transaction.operations:
                found[f"{operation.kind} {operation.path}"] += 1
    for paths, command in asked:
        assert found[f"delete {paths.command(command)}"] == 1
        assert found[f"create {paths.outcome(command)}"] == 1


def read(file: Path) -> list[Play]:
    """All plays of a file; none if there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Play(**json.loads(line)) for line in lines]


def table(plays: Collection[Play]) -> list[str]:
    """One line for each type of command."""
    lines = ["| command | kills | at different steps | lost | done twice |", "|" + " --- |" * 5]
    for name in dict.fromkeys(play.command for play in plays):
        own = [play for play in plays if play.command == name]
        kills = [(play.steps_of, play.step, at) for play in own for at in play.killed]
        lost = sum(not play.accepted or not sum(play.done) for play in own)
        twice = sum(play.consumed > 1 or sum(play.done) > 1 for play in own)
        lines.append(f"| {name} | {len(kills)} | {len(set(kills))} | {lost} | {twice} |")
    return lines
