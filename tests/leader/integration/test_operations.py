"""Operators' actions on an election, by function and by command line, on a real ZooKeeper."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from leader import (
    ElectionConfig,
    ElectionPaths,
    LeaderLockQueue,
    Participant,
    Phase,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from leader.cli.main import main
from leader.zookeeper.operations import (
    NobodyLeadsError,
    NoSuchParticipantError,
    pause,
    request_switchover,
    resume,
)
from nimbus.localstack.zookeeper import ZooKeeperServer

Eventually = Callable[..., None]
LONG = timedelta(seconds=20)


class Silent:
    """An electable that does nothing."""

    def elected(self, leadership: object) -> None:
        pass

    def revoked(self, leadership: object, reason: str) -> None:
        pass


class Election:
    """Some participants of one election, each with its own session."""

    def __init__(self, hosts: str, root: str, eventually: Eventually) -> None:
        self.hosts, self.root, self.eventually = hosts, root, eventually
        self.queues: dict[str, LeaderLockQueue] = {}
        self.sessions: dict[str, ZooKeeperSession] = {}

    def join(self, name: str, *, priority: int = 0, nofailover: bool = False) -> LeaderLockQueue:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=self.hosts, session_timeout=timedelta(seconds=4)))
        session.start(LONG)
        queue = LeaderLockQueue(
            session=session,
            config=ElectionConfig(
                root=self.root,
                requeue_backoff_min=timedelta(milliseconds=100),
                requeue_backoff_max=timedelta(milliseconds=500),
                step_down_margin=timedelta(milliseconds=500),
                priority=priority,
                nofailover=nofailover,
            ),
            participant=Participant(name, "127.0.0.1", 1, uuid.uuid4().hex),
            guard=lambda: Verdict(True),
            electable=Silent(),
        )
        self.sessions[name], self.queues[name] = session, queue
        queue.add_to_leader_lock_queue()
        return queue

    def queue_up(self, *names: str) -> None:
        """Join one after the other, in this order."""
        for name in names:
            queue = self.join(name)
            self.eventually(lambda queue=queue: queue.status().position is not None, what=f"{name} queues")
        self.leads(names[0])

    def leads(self, name: str) -> None:
        """Wait until it leads, and until its leader node is written."""
        self.eventually(self.queues[name].is_leader, what=f"{name} leads")
        self.eventually(lambda: self._published() == name, what=f"{name} is published")

    def _published(self) -> str | None:
        found = next(iter(self.queues.values())).get_leader()
        return None if found is None else found.participant.id

    def stop(self, name: str) -> None:
        self.queues.pop(name).close(LONG)
        self.sessions.pop(name).close(LONG)

    def json(self, *words: str) -> Any:
        """The answer to a command, without the log lines of this process's participants around it."""
        lines = self.run(*words, "-o", "json").stdout.splitlines()
        return json.loads(next(line for line in lines if line.startswith("{")))

    def run(self, *words: str) -> Result:
        command, *rest = words
        return CliRunner().invoke(main, [command, "--hosts", self.hosts, "--root", self.root, *rest])


@pytest.fixture
def election(zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually) -> Iterator[Election]:
    made = Election(zookeeper.hosts, zk_root, eventually)
    yield made
    for name in list(made.queues):
        made.stop(name)


def test_a_switchover_goes_to_the_participant_named_over_those_before_it(election: Election) -> None:
    election.queue_up("a", "b", "c", "d")

    said = election.json("switchover", "d", "--reason", "rack 4")

    assert said["leader"]["id"] == "d"
    election.leads("d")
    assert "switchover to d: rack 4" in (election.queues["a"].status().last_abdication or "")
    election.stop("d")  # the request was executed and removed, so the first in the queue is next
    election.eventually(lambda: any(queue.is_leader() for queue in election.queues.values()))


@pytest.mark.parametrize(
    ("to", "words"), [("a", "a leads already"), ("z", "z is not in the queue"), ("lame", "lame is not ready")]
)
def test_a_switchover_to_who_cannot_lead_is_refused_and_changes_nothing(
    election: Election, to: str, words: str
) -> None:
    election.queue_up("a", "lame")
    election.queues["lame"].publish_readiness(False, missing=3, reasons=("3 files missing",))
    election.eventually(
        lambda: any(
            view.member is not None and view.member.rank.unready == 2
            for view in election.queues["a"].get_all_participants()
        )
    )

    with pytest.raises(NoSuchParticipantError, match=words):
        request_switchover(election.sessions["a"], election.root, to, "test")
    with pytest.raises(NobodyLeadsError, match="epoch 99 is over"):
        request_switchover(election.sessions["a"], election.root, to, "test", epoch=99)

    assert election.run("switchover", to).exit_code == 3
    assert election.queues["a"].is_leader()


def test_an_operator_asks_the_leader_to_abdicate_and_the_next_leads(election: Election) -> None:
    election.queue_up("a", "b")

    said = election.run("abdicate", "--reason", "reboot")

    assert said.exit_code == 0, said.output
    assert "b at 127.0.0.1:1 leads in epoch 2" in said.stdout
    election.eventually(lambda: election.queues["a"].status().position == 1)


def test_during_a_pause_nobody_else_takes_the_lead_and_after_it_the_next_does(election: Election) -> None:
    election.queue_up("a", "b")
    assert election.run("pause", "--reason", "migration").exit_code == 0

    election.stop("a")

    b = election.queues["b"]
    election.eventually(lambda: b.status().position == 0, what="b is the oldest")
    election.eventually(lambda: b.status().paused == "migration", what="b says why it waits")
    assert not b.is_leader()
    assert "elections are paused: migration" in b.status().why()
    doctor = election.run("doctor")
    assert doctor.exit_code == 1
    assert "it does not lead, and no other may" in doctor.stdout

    assert "resumed" in election.run("resume").stdout
    election.leads("b")


def test_during_a_pause_the_paused_leader_may_come_back(election: Election) -> None:
    election.queue_up("a", "b")
    pause(election.sessions["b"], election.root, "test")
    epoch = election.queues["a"].status().epoch

    election.sessions["a"].reconnect()

    election.eventually(lambda: (election.queues["a"].status().epoch or 0) > (epoch or 0))
    election.leads("a")
    assert not election.queues["b"].is_leader()
    assert resume(election.sessions["b"], election.root)
    assert not resume(election.sessions["b"], election.root)


def test_during_a_pause_the_paused_leader_may_come_back_as_another_process(election: Election) -> None:
    election.queue_up("a", "b", "c")
    assert election.run("pause", "--reason", "migration").exit_code == 0
    election.stop("a")
    election.eventually(lambda: election.queues["b"].status().paused == "migration")

    election.join("a")

    election.leads("a")
    assert election.run("resume").exit_code == 0
    election.stop("a")
    election.eventually(lambda: any(queue.is_leader() for queue in election.queues.values()))


@pytest.mark.parametrize("strange", ["..", "a/../b", ""])
def test_a_latch_whose_id_cannot_name_a_node_disturbs_nobody(election: Election, strange: str) -> None:
    election.queue_up("a")
    stranger = KazooClient(hosts=election.hosts)
    stranger.start(timeout=60)
    try:
        latch = f"{ElectionPaths(election.root).queue}/_c_00-latch-"
        before = stranger.create(latch, strange.encode(), ephemeral=True, sequence=True)
        b = election.join("b")
        b.publish_readiness(False)  # so it reads the member nodes of the others before it claims
        election.eventually(lambda: b.status().position == 2, what="b stands behind it")
        stranger.create(latch, strange.encode(), ephemeral=True, sequence=True)

        assert b.status().trouble is None
        assert [view.participant.id for view in b.get_all_participants()] == ["a", strange, "b", strange]
        assert election.run("participants").exit_code == 0

        election.stop("a")
        stranger.delete(before)
        election.leads("b")
    finally:
        stranger.stop()
        stranger.close()


def test_nothing_can_be_asked_where_nobody_leads(election: Election, zookeeper: ZooKeeperServer) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    session.start(LONG)
    try:
        with pytest.raises(NobodyLeadsError):
            pause(session, election.root, "test")
        assert not resume(session, f"{election.root}/nothing")
    finally:
        session.close(LONG)
    assert election.run("leader").exit_code == 3
    assert "the queue is empty" in election.run("participants").stdout
    assert election.run("doctor").exit_code == 1


def test_a_reserve_yields_to_who_is_ready_and_leads_when_there_is_nobody_else(election: Election) -> None:
    reserve = election.join("reserve", priority=-1)
    election.leads("reserve")
    ready = election.join("ready")
    ready.publish_readiness(True)
    election.eventually(lambda: ready.status().position == 1)

    reserve.abdicate("test")
    election.leads("ready")
    election.eventually(lambda: reserve.status().position == 1)
    election.stop("ready")

    election.leads("reserve")


def test_a_member_that_must_not_lead_is_seen_and_never_queues(election: Election) -> None:
    watching = election.join("watching", nofailover=True)
    election.queue_up("a")
    election.stop("a")

    election.eventually(lambda: watching.get_leader() is None)
    assert watching.status().phase is Phase.LATENT
    assert watching.get_all_participants() == []


def test_the_commands_show_the_election_to_people_and_machines(election: Election) -> None:
    election.queue_up("a", "b")
    election.queues["a"].publish_readiness(True)
    election.eventually(lambda: "yes    yes" in election.run("participants").stdout)

    listed = election.json("participants")["participants"]
    assert [(row["id"], row["position"], row["is_leader"]) for row in listed] == [
        ("a", 0, True),
        ("b", 1, False),
    ]
    assert election.json("leader")["leader"]["epoch"] == 1
    assert "a at 127.0.0.1:1 leads in epoch 1" in election.run("leader").stdout
    doctor = election.run("doctor")
    assert "a leads in epoch 1" in doctor.stdout
    assert "queue: 2 in the queue" in doctor.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["leader", "--root", "/x"], 2, "--hosts"),
        (["leader", "--hosts", "127.0.0.1:1", "--root", "relative"], 2, "absolute ZooKeeper path"),
        (["leader", "--hosts", "127.0.0.1:1", "--root", "/x", "--timeout", "0.5"], 6, "127.0.0.1:1"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_wrong_usage_has_its_exit_code_and_its_words(words: list[str], code: int, message: str) -> None:
    said = CliRunner().invoke(main, words)

    assert said.exit_code == code
    assert message in said.stderr


def test_unreadable_wishes_of_operators_are_no_wishes(election: Election) -> None:
    election.queue_up("a", "b")
    client = election.sessions["b"].client
    client.create_async(ElectionPaths(election.root).control, b"\xff nonsense").get(timeout=60)

    election.stop("a")

    election.leads("b")
    assert election.run("doctor").exit_code == 1
