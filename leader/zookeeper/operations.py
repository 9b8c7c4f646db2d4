"""Functions for processes that are not in the queue: read leader and queue, write the requests of operators.

The requests are: switchover, abdication, pause and resume. Each is written into the control node, by
compare-and-set; the leader and the next candidate watch that node. A request informs the participants and
does not force them: safety depends on epoch and guard alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from leader.errors import LeaderError, RecordError
from leader.protocol import requests as r
from leader.protocol.control import Control, Pause, Switchover, decode_control, encode_control
from leader.protocol.paths import ElectionPaths
from leader.protocol.terms import EpochRecord, LeaderInfo
from leader.protocol.view import ParticipantView, epoch_steps, latches_steps, leader_steps, participants_steps
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

T = TypeVar("T")


def read_leader(session: ZooKeeperSession, root: str) -> LeaderInfo | None:
    """Read the confirmed leader; None while there is none.

    Its term may be over when this returns: show the answer, but do not decide with it.
    ZooKeeperUnavailableError without an answer, RecordError if the node contains no leader record.
    """
    return read(session, lambda: leader_steps(ElectionPaths(root)))


def read_epoch(session: ZooKeeperSession, root: str) -> EpochRecord | None:
    """Read the newest epoch, and the schema of the leader's records; None in a new election.

    ZooKeeperUnavailableError without an answer, RecordError if the node contains no epoch record.
    """
    return read(session, lambda: epoch_steps(ElectionPaths(root)))


def read_participants(session: ZooKeeperSession, root: str) -> list[ParticipantView]:
    """Read the queue, oldest first. A participant that leaves during the read is left out.

    ZooKeeperUnavailableError without an answer.
    """
    return read(session, lambda: participants_steps(ElectionPaths(root)))


def read_latches(session: ZooKeeperSession, queue: str) -> list[ParticipantView]:
    """Read a queue of latches without election (`LeaderLatch` or Curator), oldest first: it leads."""
    return read(session, lambda: latches_steps(queue))


def read(session: ZooKeeperSession, steps: Callable[[], r.Steps[T]]) -> T:
    """Run steps that only read, and so may be repeated: three attempts, each request with its own limit."""
    retrying = Retrying(
        retry=retry_if_exception(lambda exc: isinstance(exc, LeaderError) and exc.retryable),
        wait=wait_random_exponential(multiplier=0.1, max=1.0),
        stop=stop_after_attempt(3),
        reraise=True,
    )
    executor = SessionExecutor(session)
    return retrying(lambda: executor.run(steps()))


_WRITE_TRIES = 5


class NobodyLeadsError(LeaderError):
    """The request needs a leader, and there is none, or the named epoch is over."""

    code = "nobody_leads"
    retryable = True


class NoSuchParticipantError(LeaderError):
    """The named participant leads already, is not in the queue, or is not ready."""

    code = "no_such_participant"


def read_control(session: ZooKeeperSession, root: str) -> Control:
    """Read the present requests of operators. RecordError, ZooKeeperUnavailableError."""
    return SessionExecutor(session).run(_control(ElectionPaths(root)))[0]


def request_switchover(
    session: ZooKeeperSession, root: str, to: str, reason: str, *, epoch: int | None = None
) -> LeaderInfo:
    """Ask the leader to hand over to the participant `to`.

    The leader drains first, and `to` must pass its own guard. If `to` does not take the lead, another
    candidate does, and the request is void. `epoch`: refuse if the leader is not in this epoch; None: any.

    Returns:
        The present leader and its epoch. The switchover is done when another epoch is confirmed.

    Raises:
        NobodyLeadsError: There is no leader, or `epoch` is over.
        NoSuchParticipantError: `to` leads already, is not in the queue, or is not ready.
        ZooKeeperUnavailableError: No answer.
    """
    return SessionExecutor(session).run(_switchover(ElectionPaths(root), to, reason, epoch))


def request_abdication(session: ZooKeeperSession, root: str, reason: str) -> LeaderInfo:
    """Ask the leader to step down for the next candidate. Returns and raises as `request_switchover` does."""
    return SessionExecutor(session).run(_abdication(ElectionPaths(root), reason))


def pause(session: ZooKeeperSession, root: str, reason: str) -> LeaderInfo:
    """Forbid any change of leader until `resume`.

    A pause does **not** keep the leader alive. If the leader dies, loses its session, is deposed or steps
    down, no other participant takes the lead: there is no leader until it is back under the same id, or the
    pause ends. The others yield to it when it is back in the queue.

    Returns:
        The present leader, which alone may lead during the pause.

    Raises:
        NobodyLeadsError: There is no leader, so no participant could lead during the pause.
        ZooKeeperUnavailableError: No answer.
    """
    paths = ElectionPaths(root)

    def steps() -> r.Steps[LeaderInfo]:
        leader = yield from _leader(paths)
        wish = Pause(leader.participant.id, reason)
        yield from _change(paths, lambda control: replace(control, pause=wish))
        return leader

    return SessionExecutor(session).run(steps())


def resume(session: ZooKeeperSession, root: str) -> bool:
    """End a pause. Returns True if there was one. ZooKeeperUnavailableError."""
    paths = ElectionPaths(root)

    def steps() -> r.Steps[bool]:
        control, _ = yield from _control(paths)
        if control.pause is None:  # also before the first election, when the control node has no parent
            return False
        before = yield from _change(paths, lambda control: replace(control, pause=None))
        return before.pause is not None

    return SessionExecutor(session).run(steps())


def _switchover(paths: ElectionPaths, to: str, reason: str, epoch: int | None) -> r.Steps[LeaderInfo]:
    leader = yield from _leader(paths)
    if epoch not in (None, leader.epoch):
        raise NobodyLeadsError(f"epoch {epoch} is over: {leader.participant.id} leads epoch {leader.epoch}")
    if leader.participant.id == to:
        raise NoSuchParticipantError(f"{to} leads already, in epoch {leader.epoch}; there is nothing to do")
    views = {view.participant.id: view for view in (yield from participants_steps(paths))}
    if to not in views:
        raise NoSuchParticipantError(
            f"{to} is not in the queue of {paths.root}; in the queue: {', '.join(sorted(views)) or 'none'}"
        )
    member = views[to].member
    if member is not None and member.rank.unready == 2:
        raise NoSuchParticipantError(
            f"{to} is not ready ({'; '.join(member.reasons) or 'no reason given'}); wait until it is"
        )
    wish = Switchover(to, leader.epoch, reason)
    yield from _change(paths, lambda control: replace(control, switchover=wish))
    return leader


def _abdication(paths: ElectionPaths, reason: str) -> r.Steps[LeaderInfo]:
    leader = yield from _leader(paths)
    wish = Switchover("", leader.epoch, reason)
    yield from _change(paths, lambda control: replace(control, switchover=wish))
    return leader


def _leader(paths: ElectionPaths) -> r.Steps[LeaderInfo]:
    leader = yield from leader_steps(paths)
    if leader is None:
        raise NobodyLeadsError(f"there is no leader of {paths.root} now; `doctor` shows the queue and why")
    return leader


def _control(paths: ElectionPaths) -> r.Steps[tuple[Control, int | None]]:
    node = yield from r.get_if_there(paths.control)
    if node is None:
        return Control(), None
    return decode_control(node[0], paths.control), node[1].version


def _change(paths: ElectionPaths, change: Callable[[Control], Control]) -> r.Steps[Control]:
    """Change the control node by compare-and-set. Returns what was there before."""
    for _ in range(_WRITE_TRIES):
        before, version = yield from _control(paths)
        data = encode_control(change(before))
        try:
            if version is None:
                yield from r.create(paths.control, data)
            else:
                yield from r.set_data(paths.control, data, version)
        except (r.NodeExistsError, r.NodeMissingError, r.VersionMismatchError):
            continue
        return before
    raise RecordError(f"{paths.control} was changed by others in each of {_WRITE_TRIES} attempts; try again")
