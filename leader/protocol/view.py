"""Reads an election without queueing: the steps, and the values that they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from leader.errors import RecordError
from leader.protocol.participant import MemberNode, Participant, decode_id, decode_member, yields_to
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.requests import Stat, Steps, children_if_there, get_each, get_if_there
from leader.protocol.terms import EpochRecord, LeaderInfo, decode_epoch, decode_leader

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ParticipantView:
    """One latch in the queue.

    Args:
        participant: As on its member node. Only the id if it has no member node, for example a Curator latch.
        position: 0 for the oldest latch, which leads or is next to lead.
        is_leader: True for the confirmed leader only, not for a participant that only holds the lock.
        session_id: Owner of the latch node.
        member: Its member node; None without one.
    """

    participant: Participant
    position: int
    is_leader: bool
    node: str
    session_id: int
    member: MemberNode | None = None


def next_in_line(queue: Sequence[ParticipantView]) -> ParticipantView | None:
    """Return the participant that the election would choose if the leader left now. Its guard may refuse.

    `queue` is as `get_all_participants` returns it.
    """
    behind = [view for view in queue if not view.is_leader]
    first = behind[0] if behind else None
    if first is None or first.member is None:
        return first
    better = yields_to(first.member, [view.member for view in behind if view.member is not None])
    return first if better is None else next(view for view in behind if view.member is better)


def latches_steps(queue: str) -> Steps[list[ParticipantView]]:
    """See `leader.zookeeper.operations.read_latches`."""
    children = yield from children_if_there(queue)
    views: list[ParticipantView] = []
    # Latches that are deleted between the two reads are left out (CURATOR-358, CURATOR-436).
    nodes = yield from get_each([f"{queue}/{latch}" for latch in in_queue_order(children)])
    for path, (data, stat) in nodes.items():
        participant = Participant.of_any(data.decode(errors="replace"))
        views.append(ParticipantView(participant, len(views), not views, path.rpartition("/")[2], stat.owner))
    return views


def leader_steps(paths: ElectionPaths) -> Steps[LeaderInfo | None]:
    """See `leader.zookeeper.operations.read_leader`."""
    node = yield from get_if_there(paths.leader)
    if node is None:
        return None
    data, stat = node
    info = decode_leader(data, paths.leader)
    # If the named session does not own the node, the leader did not write it.
    return info if stat.owner == info.session_id else None


def epoch_steps(paths: ElectionPaths) -> Steps[EpochRecord | None]:
    """See `leader.zookeeper.operations.read_epoch`."""
    node = yield from get_if_there(paths.epoch)
    return None if node is None else decode_epoch(node[0], paths.epoch)


def participants_steps(paths: ElectionPaths) -> Steps[list[ParticipantView]]:
    """See `leader.zookeeper.operations.read_participants`."""
    try:
        leader = yield from leader_steps(paths)
    except RecordError:
        _log.warning("leader_node_unreadable", path=paths.leader)
        leader = None  # the leader corrects its node; until then the leader is not known
    children = yield from children_if_there(paths.queue)
    latches = yield from get_each([paths.latch(latch) for latch in in_queue_order(children)])
    ids = dict(_participant_ids(latches))
    members = yield from get_each(paths.members_of(ids.values()))
    views: list[ParticipantView] = []
    for path, participant_id in ids.items():
        owner = latches[path][1].owner
        member = _member_of(paths.member(participant_id), members, owner)
        participant = member.participant if member is not None else Participant.of_any(participant_id)
        leads = leader is not None and (leader.participant.id, leader.session_id) == (participant_id, owner)
        name = path.rpartition("/")[2]
        views.append(ParticipantView(participant, len(views), leads, name, owner, member))
    return views


def _participant_ids(latches: Mapping[str, tuple[bytes, Stat]]) -> Iterator[tuple[str, str]]:
    for path, (data, _) in latches.items():
        try:
            yield path, decode_id(data, path)
        except RecordError:
            _log.warning("latch_node_unreadable", path=path)


def _member_of(path: str, members: Mapping[str, tuple[bytes, Stat]], session_id: int) -> MemberNode | None:
    """Return the member node that `session_id` owns; None without one, as for a Curator latch."""
    if path not in members:
        return None
    data, stat = members[path]
    try:
        member = decode_member(data, path)
    except RecordError:
        return None
    return member if stat.owner == session_id else None
