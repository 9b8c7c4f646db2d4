"""A participant's core over a ZooKeeper in memory, step by step, with a guard that answers when told to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from leader import ElectionConfig, GatePolicy, Leadership, Participant, Verdict
from leader.errors import ZooKeeperUnavailableError
from leader.evidence import Evidence
from leader.journal import DeferredJournal, LogJournal
from leader.latch import events as latch_ev
from leader.office import events as ev
from leader.office import states as st
from leader.office.core import OfficeCore
from leader.protocol import requests as rq
from leader.protocol.paths import ElectionPaths, in_queue_order, new_latch_prefix
from leader.protocol.records import Control, Pause, Switchover, decode_card, encode_control
from leader.testing.memory import MemoryConnection, MemoryZooKeeper

ROOT = "/e"
PATHS = ElectionPaths(ROOT)
YES, NO = Verdict(True), Verdict(False, ("not synced",))
S = timedelta(seconds=10)


class Server:
    """ZooKeeper, its clock, and everybody who takes part."""

    def __init__(self) -> None:
        self.now = timedelta(0)
        self.zookeeper = MemoryZooKeeper(lambda: self.now)
        self.members: list[Member] = []

    def member(self, name: str, **settings: Any) -> Member:
        self.members.append(Member(self, name, **settings))
        return self.members[-1]

    def settle(self) -> None:
        """Let everybody do what there is to do now."""
        while sum(member.work() for member in self.members):
            pass

    def wait(self, pause: timedelta) -> None:
        """Let time pass, and everybody work meanwhile."""
        self.settle()
        until = self.now + pause
        while self.now < until:
            due = [m.core.due_at for m in self.members if m.core.due_at is not None]
            self.now = min([at for at in due if at > self.now] + [self.now + S / 3, until])
            for member in self.members:
                member.ping()
            self.zookeeper.expire_due()
            self.settle()

    def queue(self) -> list[str]:
        return [entry.name for entry in in_queue_order(self.zookeeper.tree.children(PATHS.queue))]

    def delete(self, path: str) -> None:
        """As an operator does."""
        self.zookeeper.write(rq.Delete(path))


class Member:
    """A core, its session, its guard and its electable."""

    def __init__(self, server: Server, name: str, boot_id: str = "first", **settings: Any) -> None:
        self._server = server
        self.connection: MemoryConnection | None = server.zookeeper.connect(S, self._on_watch)
        self.generation = 0
        self.evidence = Evidence()
        self.evidence.attached(self.session_id, server.now)
        self.inbox: deque[Callable[[], rq.Steps[None]]] = deque()
        self.told: list[tuple[str, int]] = []
        self.reasons: list[str] = []
        self.asked: list[Callable[[Verdict], None]] = []
        self.answer_at_once: Verdict | None = YES
        self.before: Callable[[rq.Request], None] = lambda _request: None
        self.lost_reply: Callable[[rq.Request], bool] = lambda _request: False
        self.cannot_lead = self.hangs = False
        self.owed: list[Callable[[], None]] = []
        self.core = OfficeCore(
            session=self,
            config=ElectionConfig(root=ROOT, **settings),
            participant=Participant(name, "h", 1, boot_id),
            guard=self,
            notifier=self,
            clock=lambda: server.now,
            uniform=lambda _low, high: high,
            journal=DeferredJournal(LogJournal(name)),
            post=self.post,
        )
        self._link_up()

    # --- SessionView ----------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self.connection is not None

    @property
    def session_id(self) -> int | None:
        return None if self.connection is None else self.connection.session_id

    @property
    def negotiated_timeout(self) -> timedelta:
        return S

    def reconnect(self) -> None:
        return

    def heal(self) -> None:
        return

    # --- guard and notifier -----------------------------------------------------------------------

    def ask(self, report: Callable[[Verdict], None]) -> bool:
        self.asked.append(report)
        if self.answer_at_once is not None:
            report(self.answer_at_once)
        return True

    def elected(self, leadership: Leadership) -> None:
        self.told.append(("elected", leadership.epoch))
        if self.cannot_lead:
            self.post(ev.AbdicationAsked("elected() raised", leadership.epoch))

    def revoked(self, leadership: Leadership, reason: str, done: Callable[[], None]) -> None:
        self.told.append(("revoked", leadership.epoch))
        self.reasons.append(reason)
        if self.hangs:
            self.owed.append(done)
        else:
            done()

    # --- driving ----------------------------------------------------------------------------------

    def post(self, event: ev.Posted) -> None:
        self.inbox.append(lambda: self.core.handle(event))

    def ping(self) -> None:
        """As kazoo does by itself."""
        if self.connection is not None:
            self.connection.ping()

    def die(self) -> None:
        """As with kill -9: its session lives on until it has timed out."""
        self._server.members.remove(self)

    def lose_session(self) -> None:
        """The session is over, and there is another at once."""
        assert self.connection is not None
        self.connection.close()
        self.generation += 1
        self.connection = self._server.zookeeper.connect(S, self._on_watch)
        self.evidence.attached(self.session_id, self._server.now)
        self.inbox.append(lambda: self.core.link(latch_ev.SessionGone()))
        self._link_up()

    def work(self) -> bool:
        """Do one thing, if there is one."""
        if self.inbox:
            self._run(self.inbox.popleft()())
        elif self.core.due_at is not None and self.core.due_at <= self._server.now:
            self._run(self.core.expired())
        else:
            return False
        return True

    def _link_up(self) -> None:
        session_id = self.session_id
        assert session_id is not None
        self.inbox.append(lambda: self.core.link(latch_ev.LinkUp(session_id)))

    def _on_watch(self, path: str, gone: bool) -> None:
        self.inbox.append(lambda: self.core.heard(path, gone))

    def _answer(self, request: rq.Request) -> Any:
        assert self.connection is not None
        self.before(request)
        answer = self.connection.answer(request)
        if self.lost_reply(request):
            raise ZooKeeperUnavailableError("the reply was lost")
        return answer

    def _run(self, steps: rq.Steps[None]) -> None:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return
            answer, error = None, None
            self.core.waits()
            try:
                answer = self._answer(request)
            except Exception as exc:  # noqa: BLE001 - as `SessionExecutor` does
                answer, error = None, exc


def test_a_leader_alone_whose_session_is_replaced_leads_again_at_once() -> None:
    server = Server()
    one = server.member("one")
    one.post(ev.AddAsked())
    server.settle()
    assert one.told == [("elected", 1)]

    one.lose_session()
    server.settle()

    assert one.told == [("elected", 1), ("revoked", 1), ("elected", 2)]


def test_a_leader_alone_whose_latch_is_deleted_leads_again_at_once() -> None:
    server = Server()
    one = server.member("one")
    one.post(ev.AddAsked())
    server.settle()

    server.delete(PATHS.latch(server.queue()[0]))
    server.settle()

    assert one.told == [("elected", 1), ("revoked", 1), ("elected", 2)]


def test_a_question_asked_before_somebody_else_led_does_not_count_for_a_later_epoch() -> None:
    server = Server()
    slow, other = (server.member(name, guard_timeout=timedelta(minutes=5)) for name in ("slow", "other"))
    slow.answer_at_once = None
    slow.lost_reply = lambda request: isinstance(request, rq.Transaction)
    slow.post(ev.AddAsked())
    slow.work()
    slow.work()
    assert len(slow.asked) == 1, "the guard is asked while the epoch is raised"
    slow.lost_reply = lambda _request: False
    other.post(ev.AddAsked())
    server.zookeeper.close_session(slow.session_id or 0)
    other.work()
    other.work()
    slow.lose_session()
    server.settle()
    assert [kind for kind, _ in other.told] == ["elected"]

    server.wait(2 * S)  # it finds out who stands behind it
    other.post(ev.RemoveAsked())
    server.settle()
    assert isinstance(slow.core.state, st.Guarding)
    slow.asked[0](YES)
    server.settle()

    assert slow.told == []
    assert len(slow.asked) == 2
    slow.asked[1](YES)
    server.settle()
    assert [kind for kind, _ in slow.told] == ["elected"]


def _writes_leader(request: rq.Request) -> bool:
    return isinstance(request, rq.Transaction) and any(
        isinstance(one, rq.Create) and one.path == PATHS.leader for one in request.operations
    )


def test_a_leader_node_whose_reply_was_lost_goes_with_its_leader() -> None:
    server = Server()
    one = server.member("one")
    one.lost_reply = _writes_leader
    one.post(ev.AddAsked())
    server.settle()
    assert one.told == [("elected", 1)]
    assert server.zookeeper.tree.get(PATHS.leader) is not None

    one.post(ev.RemoveAsked())
    server.settle()

    assert server.zookeeper.tree.get(PATHS.leader) is None


def test_a_leader_node_that_is_deleted_as_soon_as_it_was_written_is_written_again() -> None:
    server = Server()
    one = server.member("one")

    def meddle(request: rq.Request) -> bool:
        if _writes_leader(request):
            one.lost_reply = lambda _request: False
            server.delete(PATHS.leader)
        return False

    one.lost_reply = meddle
    one.post(ev.AddAsked())
    server.settle()

    assert server.zookeeper.tree.get(PATHS.leader) is not None


def test_a_pause_that_begins_while_a_candidate_looks_for_one_is_heard() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    one.post(ev.AddAsked())
    server.settle()

    def meddle(request: rq.Request) -> None:
        if request == rq.Exists(PATHS.control, watch=True):
            two.before = lambda _request: None
            server.zookeeper.write(rq.Create(PATHS.control, encode_control(Control(Pause("one", "upgrade")))))

    two.before = meddle
    two.post(ev.AddAsked())
    server.settle()
    assert one.session_id is not None
    server.zookeeper.close_session(one.session_id)
    two.work()

    assert two.core.status().paused == "upgrade"
    assert two.told == []


def test_who_is_out_of_the_queue_for_good_does_not_keep_others_from_a_forced_takeover() -> None:
    server = Server()
    forced: dict[str, Any] = {
        "guard_timeout": timedelta(seconds=1),
        "gate_policy": GatePolicy.FORCED,
        "forced_takeover_after": timedelta(seconds=15),
    }
    gone, left = server.member("a", **forced), server.member("b", **forced)
    gone.post(ev.AddAsked())
    server.settle()
    gone.post(ev.RemoveAsked())
    server.settle()
    left.answer_at_once = NO
    left.post(ev.AddAsked())

    server.wait(timedelta(minutes=2))

    assert [kind for kind, _ in left.told] == ["elected"]


def test_who_cannot_lead_tries_ever_more_rarely() -> None:
    server = Server()
    one = server.member("one")
    one.cannot_lead = True
    one.post(ev.AddAsked())

    server.wait(timedelta(minutes=1))

    assert len(one.told) <= 2 * 7, "after 1, 2, 4, 8, 16 and 30 seconds"


def test_who_led_for_long_comes_back_soon() -> None:
    server = Server()
    one = server.member("one")
    one.cannot_lead = True
    one.post(ev.AddAsked())
    server.wait(timedelta(seconds=20))
    one.cannot_lead = False
    server.wait(timedelta(minutes=5))
    assert one.told[-1][0] == "elected"

    one.post(ev.AbdicationAsked("enough"))
    server.settle()
    server.wait(timedelta(seconds=1.1))

    assert one.told[-1][0] == "elected"


def test_an_earlier_start_of_the_same_participant_is_waited_for_no_longer_than_it_lives() -> None:
    server = Server()
    first = server.member("one")
    first.post(ev.AddAsked())
    server.settle()
    first.die()
    again = server.member("one", boot_id="another", requeue_backoff_min=timedelta(seconds=25))
    again.post(ev.AddAsked())

    server.wait(2 * S)  # the session's end, the next look at the card, and some proofs

    assert [kind for kind, _ in again.told] == ["elected"]


def test_terms_that_end_without_a_farewell_leave_no_watches_behind() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    one.answer_at_once = two.answer_at_once = NO
    for member in (one, two):
        member.post(ev.AddAsked())
        server.settle()

    server.wait(timedelta(hours=1))

    watched = server.zookeeper.replica._on_node
    assert len([path for path, who in watched.items() if who and "handover" in path]) < 10


def test_a_stranger_whose_latch_holds_no_text_does_not_depose_a_leader_that_is_asked_for_a_switchover() -> (
    None
):
    server = Server()
    one, two = server.member("one"), server.member("two")
    one.post(ev.AddAsked())
    server.settle()
    server.zookeeper.write(rq.Create(PATHS.latch(new_latch_prefix()), b"\xff", sequential=True))
    two.post(ev.AddAsked())
    server.settle()

    wish = Control(switchover=Switchover("two", 1, "wanted"))
    server.zookeeper.write(rq.Create(PATHS.control, encode_control(wish)))
    server.settle()

    assert one.reasons == ["switchover to two: wanted"]


def test_a_core_that_was_ended_from_outside_wants_nothing_any_more() -> None:
    server = Server()
    one = server.member("one")
    one.post(ev.AddAsked())
    server.settle()

    one.core.abort("the thread ends")

    assert one.core.due_at is None, "whoever drives it would call it again and again"
    assert one.told == [("elected", 1), ("revoked", 1)]


def test_a_card_that_cannot_be_written_for_a_reason_nobody_foresaw_is_written_later() -> None:
    server = Server()
    one = server.member("one")
    one.post(ev.AddAsked())
    server.settle()

    def no_more_threads(request: rq.Request) -> None:
        if getattr(request, "path", "") == PATHS.card("one"):
            raise RuntimeError("can't start new thread")

    one.before = no_more_threads
    one.inbox.append(lambda: one.core.readiness(False, 3, 0, ("three files",)))
    server.wait(S / 2)
    assert one.told == [("elected", 1)]
    one.before = lambda _request: None
    server.wait(S / 2)

    node = server.zookeeper.tree.get(PATHS.card("one"))
    assert node is not None
    assert decode_card(node.data, "").rank.missing == 3


def test_an_answer_is_taken_though_the_others_cannot_be_read_for_a_reason_nobody_foresaw() -> None:
    server = Server()
    one = server.member("one")
    one.answer_at_once = NO

    def no_more_threads(request: rq.Request) -> None:
        if request == rq.GetChildren(PATHS.members):
            raise RuntimeError("can't start new thread")

    one.before = no_more_threads
    one.post(ev.AddAsked())
    server.settle()

    assert isinstance(one.core.state, st.BackingOff)


def test_who_still_hangs_in_the_end_of_its_last_term_does_not_lead_and_does_as_soon_as_it_is_back() -> None:
    server = Server()
    one = server.member(
        "one", requeue_backoff_min=timedelta(minutes=5), requeue_backoff_max=timedelta(hours=1)
    )
    one.post(ev.AddAsked())
    server.settle()
    one.hangs = True
    one.post(ev.AbdicationAsked("enough"))
    server.wait(timedelta(minutes=30))
    assert one.told == [("elected", 1), ("revoked", 1)]
    assert "revoked" in (one.core.status().last_abdication or "")

    one.owed.pop()()
    server.wait(S)  # some proofs

    assert one.told[2:] == [("elected", 2)]


def test_a_card_that_another_has_made_meanwhile_is_not_written_over() -> None:
    server = Server()
    one = server.member("one")
    one.post(ev.AddAsked())
    server.settle()
    server.delete(PATHS.card("one"))
    twin = server.member("one", boot_id="twin")
    twin.post(ev.AddAsked())
    server.settle()

    one.inbox.append(lambda: one.core.readiness(True, 0, 0, ()))
    server.settle()

    node = server.zookeeper.tree.get(PATHS.card("one"))
    assert node is not None
    assert node.owner == decode_card(node.data, "").session_id


def test_who_lost_its_latch_and_leaves_while_another_is_asked_is_not_shown_as_leader() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    two.answer_at_once = None
    for member in (one, two):
        member.post(ev.AddAsked())
        server.settle()
    server.delete(PATHS.latch(server.queue()[0]))
    server.settle()
    assert isinstance(two.core.state, st.Guarding)

    one.post(ev.RemoveAsked())
    server.settle()
    two.asked[0](NO)
    server.settle()

    assert server.zookeeper.tree.get(PATHS.leader) is None
