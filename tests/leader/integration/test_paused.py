"""A leader is stopped for three sessions, then continued: the classic case of two leaders.

NIMBUS_PAUSE_TRIALS: number of stopped leaders; twenty at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from leader import (
    ElectionConfig,
    ElectionPaths,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    boottime,
    fenced_transaction,
)
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.leader.chaos.election.history_lines import Did, Line
from tests.leader.chaos.election.participant_process import ParticipantProcess
from tests.report import number_from, say

TRIALS = number_from("NIMBUS_PAUSE_TRIALS", 2)
SIDE_BY_SIDE = 20
SESSION = timedelta(seconds=1.5)
PAUSE = 3 * SESSION
LONG = timedelta(seconds=15)
PACE = 5.0

pytestmark = pytest.mark.timeout(180 + TRIALS * 3)

Eventually = Callable[..., None]


class Quiet:
    def elected(self, leadership: Leadership) -> None: ...

    def revoked(self, leadership: Leadership, reason: str) -> None: ...


@dataclass
class Pair:
    """A leader in a separate process, which is stopped, and its successor."""

    root: str
    zombie: ParticipantProcess
    heir: LeaderLockQueue
    stopped_at: int = 0

    def zombie_leads(self) -> bool:
        """Whether it has written since the last call, so that it leads and has a token to try later."""
        return any(line.did is Did.WROTE for line in self.zombie.read())

    def stop(self) -> None:
        """Stop the zombie, and drop its earlier lines."""
        self.zombie.pause()
        self.zombie.read()
        self.stopped_at = len(self.zombie.lines)

    def since_waking(self) -> list[Line]:
        """The zombie's lines since its first question after the pause."""
        self.zombie.read()
        lines = self.zombie.lines[self.stopped_at :]
        session_ns = SESSION.total_seconds() * 1e9
        woke = next((at for at, line in enumerate(lines) if (line.gap_ns or 0) > session_ns), len(lines))
        return lines[woke:]


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    """The session of all successors."""
    made = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    made.start(LONG)
    yield made
    made.close(LONG)


@pytest.fixture
def pairs(
    zookeeper: ZooKeeperServer, zk_root: str, session: ZooKeeperSession, tmp_path: Path
) -> Iterator[list[Pair]]:
    made: list[Pair] = []
    try:
        for number in range(min(TRIALS, SIDE_BY_SIDE)):
            root = f"{zk_root}/{number}"
            zombie = ParticipantProcess(
                f"zombie-{number}", tmp_path, hosts=zookeeper.hosts, root=root, session=SESSION, pace=PACE
            )
            heir = LeaderLockQueue(
                session=session,
                config=ElectionConfig(root=root),
                participant=Participant(f"heir-{number}", "127.0.0.1", 2, uuid.uuid4().hex),
                guard=lambda: Verdict(True),
                electable=Quiet(),
            )
            made.append(Pair(root, zombie, heir))
            zombie.spawn()
        for pair in made:
            pair.zombie.wait_ready()
        yield made
    finally:
        for pair in made:
            pair.zombie.kill()
            pair.heir.close(LONG)


def test_a_leader_woken_after_three_sessions_does_not_lead_for_a_moment_and_writes_nothing(
    pairs: list[Pair], session: ZooKeeperSession, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[Did] = []
    writes: list[Did] = []
    while len(answers) < TRIALS:
        for pair in pairs:
            _wait_until_the_zombie_leads(pair, eventually)
        _stop_until_the_heirs_lead(pairs, eventually)
        for pair in pairs:
            answers.append(_first_answer(pair, eventually))
            writes += _fates_of_writes(pair, session, eventually)
        for pair in pairs:
            _let_the_zombie_lead_again(pair, session, eventually)

    denied, accepted, refused = answers.count(Did.DENIED), writes.count(Did.WROTE), writes.count(Did.FENCED)
    took = f"stopped for {PAUSE.total_seconds():g} s, session {SESSION.total_seconds():g} s"
    found = f"first is_leader() False in {denied} of {len(answers)}"
    say(capsys, [f"{took}: {found}; writes of zombies accepted: {accepted}, refused: {refused}"])
    assert denied == len(answers)
    assert accepted == 0


def _wait_until_the_zombie_leads(pair: Pair, eventually: Eventually) -> None:
    eventually(pair.zombie_leads, what=f"{pair.zombie.name} leads")
    pair.heir.add_to_leader_lock_queue()
    eventually(lambda: len(pair.heir.get_all_participants()) == 2, what="the heir queues behind it")


def _stop_until_the_heirs_lead(pairs: list[Pair], eventually: Eventually) -> None:
    for pair in pairs:
        pair.stop()
    stopped_at = boottime()
    for pair in pairs:
        eventually(pair.heir.is_leader, what="the heir leads when the session has run out")
    eventually(lambda: boottime() - stopped_at > PAUSE, what="three sessions are over")
    for pair in pairs:
        pair.zombie.resume()


def _first_answer(pair: Pair, eventually: Eventually) -> Did:
    eventually(pair.since_waking, what=f"{pair.zombie.name} asks again")
    return pair.since_waking()[0].did


def _fates_of_writes(pair: Pair, session: ZooKeeperSession, eventually: Eventually) -> list[Did]:
    """Wait until a write is refused. Writes before the successor's term are not those of a zombie."""
    _, epoch = session.call(session.client.get_async, ElectionPaths(pair.root).epoch)

    def fates() -> list[Did]:
        writes = [line for line in pair.since_waking() if line.did in (Did.WROTE, Did.FENCED)]
        return [line.did for line in writes if line.zxid is None or line.zxid > epoch.mzxid]

    eventually(lambda: Did.FENCED in fates(), what=f"a write of {pair.zombie.name} is refused")
    assert pair.heir.is_leader()
    return fates()


def _let_the_zombie_lead_again(pair: Pair, session: ZooKeeperSession, eventually: Eventually) -> None:
    leadership = pair.heir.leadership()
    assert leadership is not None
    path = f"{pair.root}/chaos"
    fenced_transaction(session, leadership.token, lambda t: t.set_data(path, b"of the heir"))
    assert session.call(session.client.get_async, path)[0] == b"of the heir"
    eventually(lambda: len(pair.heir.get_all_participants()) == 2, what=f"{pair.zombie.name} queues")
    pair.zombie.read()
    pair.heir.remove_from_leader_lock_queue()
