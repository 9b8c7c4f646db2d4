"""Participants' cores with a ZooKeeper in memory, driven step by step. The test answers for guards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from leader import ElectionConfig, Leadership, Participant, Verdict
from leader.core.latch import model as latch_m
from leader.core.lease import SessionLiveness
from leader.core.participant import model as m
from leader.core.participant.core import ParticipantCore
from leader.errors import ZooKeeperUnavailableError
from leader.journal import DeferredJournal, LogJournal
from leader.protocol import requests as rq
from leader.protocol.control import Control, encode_control
from leader.protocol.participant import MemberNode, decode_member
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.requests import drive
from tests.leader.expiring_zookeeper import ExpiringConnection, ExpiringZooKeeper

ROOT = "/e"
PATHS = ElectionPaths(ROOT)
YES, NO = Verdict(True), Verdict(False, ("not synced",))
S = timedelta(seconds=10)
MOMENT = timedelta(milliseconds=1)


class Server:
    """ZooKeeper, its clock, and all participants."""

    def __init__(self) -> None:
        self.now = timedelta(0)
        self.zookeeper = ExpiringZooKeeper(lambda: self.now)
        self.members: list[Member] = []

    def member(self, name: str, **settings: Any) -> Member:
        self.members.append(Member(self, name, **settings))
        return self.members[-1]

    def settle(self) -> None:
        """Let all participants do their pending work, and what a new leader does shortly after."""
        while True:
            while sum(member.work() for member in self.members):
                pass
            due = [one.core.due_at for one in self.members if one.core.due_at is not None]
            if not due or min(due) > self.now + MOMENT:
                return
            self.now = min(due)

    def wait(self, pause: timedelta) -> None:
        """Advance the time, while all participants work."""
        self.settle()
        until = self.now + pause
        while self.now < until:
            due = [one.core.due_at for one in self.members if one.core.due_at is not None]
            self.now = min([at for at in due if at > self.now] + [self.now + S / 3, until])
            for member in self.members:
                member.ping()
            self.zookeeper.expire_due()
            self.settle()

    def queue(self) -> list[str]:
        return in_queue_order(self.zookeeper.tree.children(PATHS.queue))

    def delete(self, path: str) -> None:
        """Delete a node like an operator."""
        self.zookeeper.write(rq.Delete(path))

    def wish(self, control: Control) -> None:
        """Write the control node like an operator."""
        data = encode_control(control)
        there = self.zookeeper.tree.get(PATHS.control) is not None
        self.zookeeper.write(rq.SetData(PATHS.control, data) if there else rq.Create(PATHS.control, data))


class Member:
    """A core, its session, its guard and its electable."""

    def __init__(self, server: Server, name: str, boot_id: str = "first", **settings: Any) -> None:
        self._server, self.name = server, name
        self.connection: ExpiringConnection | None = server.zookeeper.connect(self._on_watch, S)
        self.liveness = SessionLiveness()
        self._attach(S)
        self.inbox: deque[Callable[[], rq.Steps[None]]] = deque()
        self.told: list[tuple[str, int]] = []
        self.reasons: list[str] = []
        self.asked: list[Callable[[Verdict], None]] = []
        self.answer_at_once: Verdict | None = YES
        self.before: Callable[[rq.Request], None] = lambda _request: None
        self.lost_reply: Callable[[rq.Request], bool] = lambda _request: False
        self.cannot_lead = self.hangs = False
        self.owed: list[Callable[[], None]] = []
        self.core = ParticipantCore(
            session=self,
            config=ElectionConfig(root=ROOT, **settings),
            participant=Participant(name, "h", 1, boot_id),
            callbacks=self,
            clock=lambda: server.now,
            uniform=lambda _low, high: high,
            journal=DeferredJournal(LogJournal(name)),
        )
        self._link_up()

    # --- SessionView ----------------------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        return self.liveness.facts.session_id

    def reconnect(self) -> None:
        return

    # --- guard and electable ----------------------------------------------------------------------

    def ask(self, epoch: int) -> None:
        def answer(verdict: Verdict) -> None:
            self.post(m.GuardSaid(epoch, verdict))

        self.asked.append(answer)
        if self.answer_at_once is not None:
            answer(self.answer_at_once)

    def elected(self, leadership: Leadership) -> None:
        self.told.append(("elected", leadership.epoch))
        if self.cannot_lead:
            self.post(m.AbdicationAsked("elected() raised", leadership.epoch))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.told.append(("revoked", leadership.epoch))
        self.reasons.append(reason)
        drained = m.Drained(leadership.epoch)
        if self.hangs:
            self.owed.append(lambda: self.post(drained))
        else:
            self.post(drained)

    def member(self) -> MemberNode | None:
        """Our member node, read from ZooKeeper."""
        node = self._server.zookeeper.tree.get(PATHS.member(self.name))
        return None if node is None else decode_member(node.data, "")

    def publish_readiness(self, ready: bool) -> None:
        """Like `LeaderLockQueue.publish_readiness`."""
        self.inbox.append(lambda: self.core.readiness(ready, 0, 0, ()))

    # --- driving ----------------------------------------------------------------------------------

    def post(self, event: m.Event) -> None:
        self.inbox.append(lambda: self.core.handle(event))

    def ping(self) -> None:
        """Send a ping, like kazoo."""
        if self.connection is not None:
            self.connection.ping()

    def die(self) -> None:
        """End like a process that gets SIGKILL: its session stays until its timeout."""
        self._server.members.remove(self)

    def lose_session(self) -> None:
        """End the session, and open another one at once."""
        assert self.connection is not None
        self.connection.close()
        self.liveness.broke(lost=True)
        self.connection = self._server.zookeeper.connect(self._on_watch, S)
        self._attach(S)
        self.inbox.append(lambda: self.core.link(latch_m.SessionGone()))
        self._link_up()

    def reattach(self, granted: timedelta) -> None:
        """Reconnect the session to another server, which grants another timeout."""
        self.liveness.broke(lost=False)
        self._attach(granted)
        self.inbox.append(lambda: self.core.link(latch_m.LinkDown()))
        self._link_up()

    def work(self) -> bool:
        """Do one piece of work, if there is one."""
        if self.inbox:
            self._run(self.inbox.popleft()())
        elif self.core.due_at is not None and self.core.due_at <= self._server.now:
            self._run(self.core.expired())
        else:
            return False
        return True

    def _attach(self, granted: timedelta) -> None:
        assert self.connection is not None
        self.liveness.attached(self.connection.session_id, self._server.now, granted)

    def _link_up(self) -> None:
        session_id = self.session_id
        assert session_id is not None
        self.inbox.append(lambda: self.core.link(latch_m.LinkUp(session_id)))

    def _on_watch(self, path: str, gone: bool) -> None:
        self.inbox.append(lambda: self.core.watch_fired(path, gone))

    def _answer(self, request: rq.Request) -> Any:
        assert self.connection is not None
        self.before(request)
        answer = self.connection.answer(request)
        if self.lost_reply(request):
            raise ZooKeeperUnavailableError("the reply was lost")
        return answer

    def _run(self, steps: rq.Steps[None]) -> None:
        drive(steps, self._answer)
