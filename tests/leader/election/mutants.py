"""Bugs that other elections had, built into ours one at a time, to show that the simulator finds them.

Each is a context manager that replaces one or two functions of the real code. The replaced function must
exist, so that a mutant of a renamed function fails instead of counting as found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from leader.core.latch import core as latch_core
from leader.core.latch import machine as latch_machine
from leader.core.latch import model as latch_m
from leader.core.latch import steps as latch_steps
from leader.core.latch.steps import LatchSteps
from leader.core.lease import LeadershipLease, SessionLiveness
from leader.core.participant import core as participant_core
from leader.core.participant import machine as participant_machine
from leader.core.participant import model as m
from leader.core.participant.claim import EpochClaimant
from leader.elector import Guard, Verdict
from leader.errors import ZooKeeperUnavailableError
from leader.protocol import requests as rq
from leader.protocol.paths import in_queue_order
from leader.runtime import callbacks
from leader.zookeeper import fencing
from leader.zookeeper.states import SessionState, SessionStates
from tests.leader.election.world import Settings

Make = Callable[[], Iterator[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One built-in bug.

    Args:
        build_in: Context manager in which the code has the bug.
        storm: Settings that find it soon.
        rare: Whether the usual settings almost never find it, so that it needs `storm`.
    """

    build_in: Callable[[], AbstractContextManager[None]]
    storm: Settings
    rare: bool = False


MUTANTS: dict[str, Mutant] = {}


def _mutant(*kinds: str, storm: Settings | None = None) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        found_in = storm or Settings(kinds=kinds)
        MUTANTS[make.__name__] = Mutant(contextmanager(make), found_in, rare=storm is not None)
        return make

    return add


_CUT_FROM_LEADER_AND_PAUSED = Settings(
    session_ticks=(10,),
    sync_ticks=(20,),
    margins=(0.02,),
    drift=0.0,
    kinds=("isolate and pause",),
    faults=(8, 8),
    gap=1.5,
)
"""The signs of life do not reach the ensemble's leader, and the paused client does not notice."""


@contextmanager
def _replaced(owner: Any, **others: Any) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in others}
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name, one in before.items():
            setattr(owner, name, one)


# --- nodes that are left, lost or confused with others --------------------------------------------


@_mutant("trap")
def orphan_after_lost_reply() -> Iterator[None]:
    """CURATOR-45, 62, 79: the create was executed, its reply was lost, and the node is not searched."""

    def adopt(self: Any, _session_id: int) -> rq.Steps[str | None]:
        self._doubtful.clear()
        yield from ()
        return None

    with _replaced(LatchSteps, _adopt=adopt):
        yield


@_mutant("trap", "replace session")
def adopts_by_name_alone() -> Iterator[None]:
    """CURATOR-498, kazoo K3: a client uses a node of an older session as its own."""

    def adopt(self: Any, _session_id: int) -> rq.Steps[str | None]:
        children = yield from _children(self._queue)
        mine = [one for one in children if any(one.startswith(prefix) for prefix in self._doubtful)]
        if mine:
            self._doubtful.clear()
        return mine[0] if mine else None

    with _replaced(LatchSteps, _adopt=adopt, read_queue=_read_queue_without_owner):
        yield


@_mutant("replace session", "black hole", "slow link")
def keeps_node_of_older_session() -> Iterator[None]:
    """CURATOR-696: after a reconnect the old node is used again, without checking its session."""
    join = LatchSteps.join

    def keep(self: Any) -> rq.Steps[latch_m.Joined]:
        old, facts = self._node, self._session.liveness.facts
        session_id = facts.session_id
        if old is None or session_id is None or not facts.is_connected:
            return (yield from join(self))
        if (yield from rq.exists(self._path(old.name))) is None:
            return (yield from join(self))
        self._node = replace(old, session_id=session_id)
        return latch_m.Joined(self._node)

    with _replaced(LatchSteps, join=keep, read_queue=_read_queue_without_owner):
        yield


@_mutant("trap", "abdicate")
def forgets_before_delete_is_confirmed() -> Iterator[None]:
    """CURATOR-678, kazoo K4: the delete got no answer, but the client treats the node as deleted."""
    withdraw = LatchSteps.withdraw

    def forget(self: Any) -> rq.Steps[latch_m.Withdrawn]:
        try:
            return (yield from withdraw(self))
        except ZooKeeperUnavailableError:
            self._node = None
            self._doubtful.clear()
            return latch_m.Withdrawn()

    with _replaced(LatchSteps, withdraw=forget):
        yield


@_mutant("trap")
def sequence_is_never_negative() -> Iterator[None]:
    """Kazoo's K9, and once a bug here: -2147483648 follows 2147483647, and names are parsed wrongly."""
    with _replaced(latch_steps, _prefix=lambda name: name[: name.rfind("-") + 1]):
        yield


@_mutant("trap")
def close_forgets_a_create_under_way() -> Iterator[None]:
    """CURATOR-3, 18: closed before the answer to a create; the node stays until the session ends."""
    withdraw = LatchSteps.withdraw

    def forget(self: Any) -> rq.Steps[latch_m.Withdrawn]:
        self._doubtful.clear()
        return (yield from withdraw(self))

    with _replaced(LatchSteps, withdraw=forget):
        yield


@_mutant()
def surrender_hears_the_older_latch() -> Iterator[None]:
    """Storm: the callback has an older, closed latch, and finds nothing to remove."""
    perform = participant_core.ParticipantCore._perform

    def ignore(self: Any, effect: m.Effect) -> rq.Steps[m.Event | None]:
        if isinstance(effect, m.CloseLatch):
            self._latch = None
            return m.LatchEnded()
        return (yield from perform(self, effect))

    with _replaced(participant_core.ParticipantCore, _perform=ignore):
        yield


# --- returning to the queue ----------------------------------------------------------------------


@_mutant("delete queue")
def queue_is_made_once() -> Iterator[None]:
    """CURATOR-724: the parent of the latches was deleted, and is not created again."""
    create = LatchSteps._create

    def once(self: Any, prefix: str) -> rq.Steps[str]:
        if self._claimant.leadership is None and self._claimant._highest == 0:
            return (yield from create(self, prefix))
        path = yield from rq.create(self._path(prefix), self._data, ephemeral=True, sequential=True)
        return path.rpartition("/")[2]

    with _replaced(LatchSteps, _create=once):
        yield


@_mutant()
def silent_after_an_error() -> Iterator[None]:
    """CURATOR-168: after an error while joining, the client does nothing, so there is no leader."""
    joining = latch_machine._joining

    def silent(state: latch_m.Joining, event: latch_m.Event) -> latch_machine.LatchTransition:
        if isinstance(event, latch_m.CallFailed):
            return latch_machine.LatchTransition(state)
        return joining(state, event)

    with _replaced(latch_machine, _joining=silent):
        yield


@_mutant()
def surrendered_and_never_queued_again() -> Iterator[None]:
    """STORM-3354: a client that released the lock because of its guard does not queue again."""
    after = participant_machine._after_leaving

    def stay_out(state: m.Leaving) -> participant_machine.ParticipantTransition:
        if state.leave is m.Leave.BACK_OFF:
            return participant_machine.ParticipantTransition(m.Outside())
        return after(state)

    with _replaced(participant_machine, _after_leaving=stay_out):
        yield


@_mutant("trap", "slow link")
def no_latch_after_a_failed_start() -> Iterator[None]:
    """Found here by this simulator: after an error before the create, the client waited without a latch."""
    start = participant_core.ParticipantCore._start_latch

    def fail(self: Any) -> rq.Steps[m.Event | None]:
        if self._session.liveness.facts.is_connected:
            yield from rq.exists(self.paths.members)
        return (yield from start(self))

    with _replaced(participant_core.ParticipantCore, _start_latch=fail):
        yield


# --- taking the lock -----------------------------------------------------------------------------


@_mutant("abdicate", "crash")
def any_deletion_is_our_turn() -> Iterator[None]:
    """CURATOR-620, 652, 653: an event about an earlier predecessor is treated as if the client were next."""
    waiting = latch_machine._waiting

    def hasty(state: latch_m.Waiting, event: latch_m.Event) -> latch_machine.LatchTransition:
        if isinstance(event, latch_m.NodeGone):
            return latch_machine._claim(state.node)
        return waiting(state, event)

    with _replaced(latch_machine, _waiting=hasty):
        yield


@_mutant()
def leads_before_the_guard() -> Iterator[None]:
    """STORM-3262 and current Storm: visible as leader before the guard was called."""
    in_line = participant_machine._in_line

    def eager(state: m.InLine, event: m.Event) -> participant_machine.ParticipantTransition:
        if isinstance(event, m.LatchGained):
            granted = event.leadership
            effects = (m.GrantLeadership(granted), m.AskGuard(granted.epoch), m.Publish(granted))
            return participant_machine.ParticipantTransition(m.Leading(granted), effects)
        return in_line(state, event)

    with _replaced(participant_machine, _in_line=eager):
        yield


@_mutant()
def guard_that_raises_means_yes() -> Iterator[None]:
    """Storm: an exception in the guard keeps leadership."""
    checked = callbacks.checked

    def lenient(asked: Guard) -> Verdict:
        try:
            asked()
        except Exception:  # noqa: BLE001 - that is the fault
            return Verdict(True)
        return checked(asked)

    with _replaced(callbacks, checked=lenient):
        yield


@_mutant("wipe")
def epoch_may_go_backwards() -> Iterator[None]:
    """As in Kafka and Flink after a deletion of all data: the epoch starts again, and is not refused."""
    read = EpochClaimant._read_epoch

    def forgetful(self: Any) -> rq.Steps[Any]:
        self._highest = 0
        return (yield from read(self))

    with _replaced(EpochClaimant, _read_epoch=forgetful):
        yield


# --- leading too long ----------------------------------------------------------------------------


@_mutant("delete latch")
def own_node_is_not_watched() -> Iterator[None]:
    """CURATOR-171, and current Curator: the leader's node is deleted, and it still leads."""
    prove = EpochClaimant.prove
    holding = latch_machine._holding

    def believe(self: Any, node: latch_m.Node) -> rq.Steps[Any]:
        if self.leadership is None:
            return (yield from prove(self, node))
        yield from rq.exists("/")
        return latch_m.Proven()

    def deaf(
        state: latch_m.Holding, event: latch_m.Event, policy: latch_machine.SuspendedPolicy
    ) -> latch_machine.LatchTransition:
        if isinstance(event, latch_m.NodeGone | latch_m.QueueChanged):
            return latch_machine.LatchTransition(state)
        return holding(state, event, policy)

    with _replaced(EpochClaimant, prove=believe), _replaced(latch_machine, _holding=deaf):
        yield


@_mutant("isolate server")
def a_read_is_proof() -> Iterator[None]:
    """CURATOR-444: a follower that is isolated from its leader answers reads, which count as proof."""

    def read(self: Any, node: latch_m.Node) -> rq.Steps[Any]:
        stat = yield from rq.exists(self._paths.latch(node.name))
        return latch_m.LatchGone() if stat is None else latch_m.Proven()

    with _replaced(EpochClaimant, prove=read):
        yield


@_mutant("pause")
def leader_is_a_flag() -> Iterator[None]:
    """TN10, client-go's IsLeader, kazoo's is_acquired: the answer does not depend on the clock."""
    with _replaced(LeadershipLease, _is_certain=lambda _self, _hold: True):
        yield


@_mutant("pause", "black hole")
def deadline_from_suspended() -> Iterator[None]:
    """TN14: the time is counted from the detected loss of the connection, not from the last proof."""

    def is_certain(self: Any, _hold: Any) -> bool:
        liveness, now = self._liveness, self._clock()
        if liveness.facts.is_connected:
            liveness.facts = replace(liveness.facts, alive_since=now)
        facts = liveness.facts
        return facts.alive_since is not None and now < facts.alive_since + facts.timeout

    step = latch_machine.step

    def patient(state: Any, event: Any, _policy: Any) -> latch_machine.LatchTransition:
        return step(state, event, latch_machine.SuspendedPolicy.SESSION)

    with (
        _replaced(LeadershipLease, _is_certain=is_certain),
        _replaced(latch_machine, step=patient),
    ):
        yield


@_mutant("black hole")
def dead_link_is_not_noticed() -> Iterator[None]:
    """Kazoo's K1 without a deadline: without answers, still connected and leader."""
    prove = latch_core.LatchCore._prove

    def patient(self: Any, node: latch_m.Node) -> rq.Steps[latch_m.Event]:
        try:
            return (yield from prove(self, node))
        except ZooKeeperUnavailableError:
            return latch_m.Proven()

    with (
        _replaced(latch_core.LatchCore, _prove=patient),
        _replaced(
            LeadershipLease,
            _is_certain=lambda _self, _hold: True,
            proven=lambda _self, _submitted: True,
        ),
        _replaced(SessionStates, suspended=lambda _self: None),
    ):
        yield


@_mutant("replace session")
def replaced_session_is_not_noticed() -> Iterator[None]:
    """Kazoo's K2: a new session without notice; the known facts are those of the old session."""

    def connected(self: Any, session_id: int | None, asked: timedelta, timeout: timedelta) -> None:
        self.liveness.attached(self.liveness.facts.session_id or session_id, asked, timeout)
        self._tell(SessionState.CONNECTED)

    with _replaced(SessionStates, connected=connected):
        yield


@_mutant("cut", "expire session")
def nobody_is_told_of_a_loss() -> Iterator[None]:
    """Kazoo's K7, kubernetes #23731: the session is lost, and the leader's code is not notified."""

    def mute(reason: str, then: latch_machine.LatchTransition) -> latch_machine.LatchTransition:
        del reason
        return then

    with _replaced(latch_machine, _lost=mute):
        yield


@_mutant(storm=_CUT_FROM_LEADER_AND_PAUSED)
def deadline_from_the_reply() -> Iterator[None]:
    """Patroni: the lease counts from the time of the answer, not from the time of the request."""

    def proven(self: Any, _session_id: Any, _submitted: timedelta, answered: timedelta) -> None:
        self.facts = replace(self.facts, alive_since=answered)

    with _replaced(SessionLiveness, proven=proven):
        yield


@_mutant(storm=_CUT_FROM_LEADER_AND_PAUSED)
def deadline_from_the_last_proof() -> Iterator[None]:
    """Signs of life and writes are sent separately: a committed write may not have prolonged the session."""

    def proven(self: Any, _session_id: Any, submitted: timedelta, _answered: timedelta) -> None:
        self.facts = replace(self.facts, alive_since=submitted)

    with _replaced(SessionLiveness, proven=proven):
        yield


@_mutant("abdicate", "pause")
def writes_without_a_fence() -> Iterator[None]:
    """KAFKA-6082: a write does not contain its epoch."""

    def unfenced(session: Any, _token: Any, build: Any, *, timeout: Any = None) -> list[Any]:
        transaction = session.client.transaction()
        build(transaction)
        return list(session.call(transaction.commit_async, timeout=timeout))

    with _replaced(fencing, fenced_transaction=unfenced):
        yield


# --- helpers --------------------------------------------------------------------------------------


def _children(path: str) -> rq.Steps[list[str]]:
    try:
        return (yield from rq.get_children(path))
    except rq.NodeMissingError:
        return []


def _read_queue_without_owner(self: Any, node: latch_m.Node) -> rq.Steps[latch_m.SawSelf | latch_m.LatchGone]:
    """Like the real function, but without checking the owner of the node."""
    names = in_queue_order((yield from _children(self._queue)))
    own = yield from rq.exists(self._path(node.name), watch=True)
    if own is None or node.name not in names:
        return latch_m.LatchGone()
    position = names.index(node.name)
    place = latch_m.Place(position, names[position - 1] if position else None)
    if place.before is not None:
        yield from rq.exists(self._path(place.before), watch=True)
    yield from self._claimant.stand_by(node, place)
    return latch_m.SawSelf(place)
