"""Looking at an election from outside, without queueing."""

from __future__ import annotations

import structlog
from kazoo.exceptions import NoNodeError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from leader.errors import LeaderError, RecordError
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.records import LeaderInfo, ParticipantView, decode_leader, decode_participant
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)


def _retrying() -> Retrying:
    """Reads may be repeated; three tries, each with the session's call timeout."""
    return Retrying(
        retry=retry_if_exception(lambda exc: isinstance(exc, LeaderError) and exc.retryable),
        wait=wait_random_exponential(multiplier=0.1, max=1.0),
        stop=stop_after_attempt(3),
        reraise=True,
    )


def read_leader(session: ZooKeeperSession, root: str) -> LeaderInfo | None:
    """Read the confirmed leader; None while there is none.

    It may be over by the time you read it. Safe to show, not to decide with.

    Raises:
        ZooKeeperUnavailableError: No answer.
        RecordError: The node holds something else.
    """
    paths = ElectionPaths(root)
    try:
        data, _stat = _retrying()(session.call, session.client.get_async, paths.leader)
    except NoNodeError:
        return None
    return decode_leader(data, paths.leader)


def read_participants(session: ZooKeeperSession, root: str) -> list[ParticipantView]:
    """Read the queue, oldest first. Who leaves while we read is left out, and so is what is not ours.

    Raises:
        ZooKeeperUnavailableError: No answer.
    """
    paths = ElectionPaths(root)
    try:
        leader = read_leader(session, root)
    except RecordError:
        _log.warning("leader_node_unreadable", path=paths.leader)
        leader = None  # its owner corrects it; meanwhile nobody is known to lead
    try:
        children = _retrying()(session.call, session.client.get_children_async, paths.queue)
    except NoNodeError:
        return []  # nobody ever queued
    views: list[ParticipantView] = []
    for latch in in_queue_order(children):
        path = paths.latch(latch.name)
        try:
            data, stat = _retrying()(session.call, session.client.get_async, path)
            participant = decode_participant(data, path)
        except NoNodeError:
            continue
        except RecordError:
            _log.warning("latch_node_unreadable", path=path)
            continue
        leads = leader is not None and leader.participant == participant
        leads = leads and leader is not None and leader.session_id == stat.ephemeralOwner
        views.append(ParticipantView(participant, len(views), leads, latch.name, stat.ephemeralOwner))
    return views
