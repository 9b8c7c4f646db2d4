"""Kills the leader (SIGKILL) at each step of sending an alert: none is missing, and repetitions say so.

The leaders have the real engine, election, store, crash sentinel and webhook on a real ZooKeeper. An HTTP
server takes the alerts; the worker is simulated. In memory, and repeatedly for one alert:
`tests/nimbus/property/test_alert_kills.py`. At random moments: `test_alert_leader_kills.py`.

NIMBUS_ALERT_KILLS: kills at each point. NIMBUS_ALERT_KILLS_RECORD: a file to which kills are appended; kills
that it already contains are not repeated.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
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
from nimbus.domain.cluster.alerts import Alert, AlertState
from nimbus.domain.commands import Command, PublishRelease, StartRun
from nimbus.domain.ids import RunId
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.engine.simulated_workers import SimulatedWorkers
from tests.nimbus.alert_receivers import HttpReceiver, webhook_server
from tests.nimbus.chaos.alert_step_leader import BEHIND, POINTS, SPEC, UNANSWERED, is_about, leader_of
from tests.nimbus.chaos.backfill_leader import RELEASE
from tests.nimbus.chaos.forked_leaders import LONGEST_S, ForkedLeaders, Notes, wait
from tests.nimbus.outcomes import await_outcome
from tests.report import append, number_from, say
from tests.thorough import thorough

KILLS = number_from("NIMBUS_ALERT_KILLS", 19)
RECORD = "NIMBUS_ALERT_KILLS_RECORD"
AHEAD = "-ahead"
"""Suffix of the name of a run for whose alert another alert waits."""
LONG = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The result of one kill."""

    at: str
    messages: list[list[bool]]
    """For each message, whether it says that it may be a repetition: those of the alert, then those of the
    alert that it waited for."""
    took_s: float

    @property
    def passed(self) -> bool:
        """Whether no alert is missing, and repeated ones say so."""
        counted = tuple(map(len, self.messages))
        return counted == POINTS[self.at] and all(all(more) for _, *more in self.messages)


@pytest.mark.chaos
@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=thorough)])
@pytest.mark.timeout(7200)
def test_no_alert_is_missing_when_its_leader_is_killed_at_each_step(
    tmp_path: Path, zookeeper: ZooKeeperServer, zk_root: str, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "kills.jsonl"
    if kills > 1 and RECORD in os.environ:
        record = Path(os.environ[RECORD])
    played = Counter(one.at for one in read(record))
    wanted = [at for number in range(kills) for at in POINTS if played[at] <= number]
    with stage(tmp_path, zookeeper.hosts, zk_root) as on:
        for number, at in enumerate([*wanted, ""]):  # the last leader is not killed
            on.start(f"r{number}", at)
            if number:
                append(record, on.sent())
            if at:
                on.kill()
        assert len(on.receiver.got) == on.taken
    found = read(record)
    say(capsys, table(found))
    assert [one for one in found if not one.passed] == []
    assert min(Counter(one.at for one in found)[at] for at in POINTS) >= kills


class Stage:
    """A cluster whose leaders die, each at an alert of one run, after finishing earlier work."""

    def __init__(
        self, hosts: str, session: ZooKeeperSession, root: str, notes: Notes,
        receiver: HttpReceiver, leaders: ForkedLeaders,
    ) -> None:  # fmt: skip
        self._hosts, self._root, self._notes = hosts, root, notes
        self.receiver, self._leaders = receiver, leaders
        self._queue = TreeCommandQueue(calls_on(session), root)
        self._reader = TreeClusterReader(calls_on(session), root)
        self._run, self._at, self._pid = "", "", 0
        self._killed_at, self._began = "", 0.0
        self._alerts: list[str] = []
        """The runs whose alert the last leader died at."""
        self._answers = threading.Event()
        """Set when the target may answer the first of two alerts."""
        self.taken = 0
        """Number of messages counted so far."""
        receiver.before_answer = self._taken

    def start(self, run: str, at: str) -> None:
        """Start the leader that dies at a point of the alert about `run`."""
        self._run, self._at = run, at
        self._pid = self._leaders.start(
            hosts=self._hosts, root=self._root, url=self.receiver.url, run=run, at=at,
            notes=str(self._notes.file),
        )  # fmt: skip

    def kill(self) -> None:
        """Cause the alert at which the leader dies, and wait until it is dead."""
        self._killed_at, self._began, self._alerts = self._at, time.monotonic(), [self._run]
        if self._reader.pipeline(SPEC.name) is None:
            self._ask(PublishRelease(pipeline=SPEC.name, digest=RELEASE.digest, activate=True))
        if self._at.endswith(BEHIND):
            self._alerts.append(f"{self._run}{AHEAD}")
            self._answers.clear()
            self._run_once(self._alerts[1])
            wait(lambda: self._messages(self._alerts[1]))
        self._run_once(self._run)
        if " claim " in self._at:
            wait(lambda: self._alert(self._run))
            self._answers.set()
        death = {"leader": leader_of(self._run), "killed": self._at}
        self._notes.wait_for(str(death), lambda lines: death in lines)
        self._answers.set()

    def sent(self) -> Kill:
        """Wait until all remaining alerts of the last leader are sent. Returns the result."""
        for run in self._alerts:
            wait(lambda run=run: (alert := self._alert(run)) and alert.state is AlertState.SENT)  # type: ignore[misc]
        messages = [self._messages(run) for run in self._alerts]
        self.taken += sum(map(len, messages))
        took_s = round(time.monotonic() - self._began, 2)
        return Kill(at=self._killed_at, messages=messages, took_s=took_s)

    def _messages(self, run: str) -> list[bool]:
        """For each message about a run, whether it says that it may be a repetition."""
        bodies = (json.loads(body) for _, body in self.receiver.got[:])
        return [bool(body["may_repeat"]) for body in bodies if is_about(body["id"], run)]

    def _alert(self, run: str) -> Alert | None:
        return next((alert for alert in self._reader.alerts() if is_about(alert.id, run)), None)

    def _run_once(self, run: str) -> None:
        self._queue.submit(StartRun(pipeline=SPEC.name, run_id=RunId(run)), submitted_by="test")

    def _ask(self, command: Command) -> None:
        outcome = await_outcome(self._queue, self._queue.submit(command, submitted_by="test"), LONG)
        assert outcome is not None
        assert outcome.accepted, outcome.message

    def _taken(self, key: str) -> None:
        """Called when the target has received a message, before it answers."""
        if self._at == UNANSWERED and is_about(key, self._run):
            os.kill(self._pid, signal.SIGKILL)
            self._notes.add(leader_of(self._run), killed=UNANSWERED)
        if is_about(key, f"{self._run}{AHEAD}"):
            self._answers.wait(LONGEST_S)


@contextmanager
def stage(folder: Path, hosts: str, root: str) -> Iterator[Stage]:
    """The servers that a leader needs."""
    notes = Notes(folder / "notes.jsonl")
    notes.file.touch()
    with ExitStack() as opened:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=LONG))
        session.start(LONG)
        opened.callback(session.close, LONG)
        receiver = opened.enter_context(webhook_server())
        workers = opened.enter_context(closing(SimulatedWorkers(session, root)))
        workers.register("w", 1, 4, holding=False)
        leaders = ForkedLeaders("tests.nimbus.chaos.alert_step_leader", folder / "leaders.log")
        yield Stage(hosts, session, root, notes, receiver, opened.enter_context(closing(leaders)))


def read(file: Path) -> list[Kill]:
    """All kills of a file; none if there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Kill(**json.loads(line)) for line in lines]


def table(kills: Sequence[Kill]) -> list[str]:
    """One line for each point, and one for all."""
    lines = [
        "| the leader is killed | kills | alerts | missing | sent twice | the second marked `may_repeat` |"
    ]
    lines.append("|" + " --- |" * 6)
    for at in (*POINTS, "in all"):
        own = [one for one in kills if at in (one.at, "in all")]
        alerts = [messages for one in own for messages in one.messages]
        twice = [messages for messages in alerts if len(messages) > 1]
        counts = (len(own), len(alerts), alerts.count([]), len(twice), sum(all(two[1:]) for two in twice))
        lines.append(f"| {at} | {' | '.join(map(str, counts))} |")
    return lines
