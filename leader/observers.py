"""Looking at an election from outside, without queueing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from leader.errors import LeaderError, RecordError
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.records import (
    Card,
    LeaderInfo,
    Participant,
    ParticipantView,
    decode_card,
    decode_id,
    decode_leader,
)
from leader.protocol.requests import NodeMissingError, Steps, get, get_children
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

T = TypeVar("T")


def read_leader(session: ZooKeeperSession, root: str) -> LeaderInfo | None:
    """Read the confirmed leader; None while there is none.

    It may be over by the time you read it. Safe to show, not to decide with.

    Raises:
        ZooKeeperUnavailableError: No answer.
        RecordError: The node holds something else.
    """
    return _read(session, lambda: leader_steps(ElectionPaths(root)))


def read_participants(session: ZooKeeperSession, root: str) -> list[ParticipantView]:
    """Read the queue, oldest first. Who leaves while we read is left out.

    Raises:
        ZooKeeperUnavailableError: No answer.
    """
    return _read(session, lambda: participants_steps(ElectionPaths(root)))


def read_latches(session: ZooKeeperSession, queue: str) -> list[ParticipantView]:
    """Read the queue of bare latches at `queue`, ours or Curator's, oldest first; the first is the leader.

    Raises:
        ZooKeeperUnavailableError: No answer.
    """
    return _read(session, lambda: latches_steps(queue))


def latches_steps(queue: str) -> Steps[list[ParticipantView]]:
    """See `read_latches`."""
    try:
        children = yield from get_children(queue)
    except NodeMissingError:
        return []
    views: list[ParticipantView] = []
    for latch in in_queue_order(children):
        path = f"{queue}/{latch.name}"
        try:
            data, stat = yield from get(path)
        except NodeMissingError:
            continue  # left meanwhile (CURATOR-358, CURATOR-436)
        bearer = Participant.of_any(data.decode(errors="replace"))
        views.append(ParticipantView(bearer, len(views), not views, latch.name, stat.owner))
    return views


def leader_steps(paths: ElectionPaths) -> Steps[LeaderInfo | None]:
    """See `read_leader`."""
    try:
        data, stat = yield from get(paths.leader)
    except NodeMissingError:
        return None
    info = decode_leader(data, paths.leader)
    # Whoever does not own the node did not write it while leading.
    return info if stat.owner == info.session_id else None


def participants_steps(paths: ElectionPaths) -> Steps[list[ParticipantView]]:
    """See `read_participants`."""
    try:
        leader = yield from leader_steps(paths)
    except RecordError:
        _log.warning("leader_node_unreadable", path=paths.leader)
        leader = None  # its owner corrects it; meanwhile nobody is known to lead
    try:
        children = yield from get_children(paths.queue)
    except NodeMissingError:
        return []  # nobody ever queued
    views: list[ParticipantView] = []
    for latch in in_queue_order(children):
        path = paths.latch(latch.name)
        try:
            data, stat = yield from get(path)
            participant_id = decode_id(data, path)
            card = yield from _card_of(paths, participant_id, stat.owner)
            participant = card.participant if card is not None else Participant.of_any(participant_id)
        except NodeMissingError:
            continue
        except LeaderError as exc:
            if exc.retryable:
                raise
            _log.warning("latch_node_unreadable", path=path)
            continue
        leads = (
            leader is not None and leader.participant.id == participant_id and leader.session_id == stat.owner
        )
        views.append(ParticipantView(participant, len(views), leads, latch.name, stat.owner, card))
    return views


def _card_of(paths: ElectionPaths, participant_id: str, session_id: int) -> Steps[Card | None]:
    """The card that belongs to a latch of this session; None if it has none, as a Curator latch."""
    path = paths.card(participant_id)
    try:
        data, stat = yield from get(path)
        card = decode_card(data, path)
    except (NodeMissingError, RecordError):
        return None
    return card if stat.owner == session_id else None


def _read(session: ZooKeeperSession, steps: Callable[[], Steps[T]]) -> T:
    """Reads may be repeated; three tries, each request with its own limit."""
    retrying = Retrying(
        retry=retry_if_exception(lambda exc: isinstance(exc, LeaderError) and exc.retryable),
        wait=wait_random_exponential(multiplier=0.1, max=1.0),
        stop=stop_after_attempt(3),
        reraise=True,
    )
    executor = SessionExecutor(session)
    return retrying(lambda: executor.run(steps()))
