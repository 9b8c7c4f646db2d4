"""Checks an election and reports problems. Only reads; needs no leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from leader.core.participant.eligibility import read_members
from leader.errors import LeaderError
from leader.protocol.participant import MemberNode
from leader.protocol.paths import ElectionPaths
from leader.protocol.terms import LeaderInfo
from leader.protocol.view import ParticipantView
from leader.zookeeper.acl import AclEnforcement
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.operations import read_control, read_epoch, read_leader, read_participants
from leader.zookeeper.session import ZooKeeperSession


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `detail` says what was found, and what to do about it."""

    check: str
    ok: bool
    detail: str


def examine(session: ZooKeeperSession, root: str) -> list[Finding]:
    """Check the nodes below `root`. ZooKeeperUnavailableError if ZooKeeper does not answer."""
    paths, findings = ElectionPaths(root), [_session(session)]
    try:
        epoch = read_epoch(session, root)
    except LeaderError as exc:
        findings.append(Finding("epoch", False, str(exc)))
    else:
        if epoch is None:
            findings.append(Finding("epoch", False, f"{paths.epoch} is missing: no participant has led yet"))
            return findings
        findings.append(Finding("epoch", True, f"epoch {epoch.epoch}, schema {epoch.schema}"))
    try:
        leader = read_leader(session, root)
    except LeaderError as exc:
        leader = None
        findings.append(Finding("leader node", False, str(exc)))
    views = read_participants(session, root)
    members = SessionExecutor(session).run(read_members(paths))
    findings.append(_leader(leader, views))
    findings.extend(_queue(views))
    findings.extend(_members(members, views, leader))
    findings.extend(_control(session, root, leader))
    findings.extend(_access(session, root))
    return findings


def _session(session: ZooKeeperSession) -> Finding:
    asked, granted = session.config.session_timeout, session.negotiated_timeout
    return Finding(
        "session timeout",
        asked == granted,
        f"asked for {asked.total_seconds():g} s, granted {granted.total_seconds():g} s"
        + ("" if asked == granted else "; the server's tickTime limits it: change one of the two"),
    )


def _leader(leader: LeaderInfo | None, views: list[ParticipantView]) -> Finding:
    if leader is None:
        who = f"; first in the queue is {views[0].participant.id}" if views else "; the queue is empty"
        return Finding("leader", False, "there is no leader" + who)
    first = views[0].participant.id if views else None
    holds = first == leader.participant.id
    detail = f"{leader.participant.id} leads in epoch {leader.epoch}"
    if not holds:
        detail += f", but the oldest latch is that of {first}: a hand-over is under way, or it lost the lock"
    return Finding("leader", holds, detail)


def _queue(views: list[ParticipantView]) -> Iterator[Finding]:
    yield Finding("queue", bool(views), f"{len(views)} in the queue")
    for participant_id, count in Counter(view.participant.id for view in views).items():
        if count > 1:
            yield Finding(
                "queue",
                False,
                f"{participant_id} is in the queue {count} times: do two processes have this id?",
            )
    strangers = [view.node for view in views if view.member is None]
    if strangers:
        yield Finding(
            "queue", False, f"latches without a member node, for example Curator's: {', '.join(strangers)}"
        )


def _members(
    members: list[MemberNode], views: list[ParticipantView], leader: LeaderInfo | None
) -> Iterator[Finding]:
    queued = {view.participant.id for view in views}
    for member in sorted(members, key=lambda member: member.rank):
        name, why = member.participant.id, "; ".join(member.reasons)
        if member.nofailover:
            yield Finding("member", True, f"{name} never leads (nofailover)")
        elif member.declined or member.rank.unready == 2:
            yield Finding("member", False, f"{name} is not ready: {why or 'no reason given'}")
        elif name not in queued:
            yield Finding("member", False, f"{name} is not in the queue: it backs off, or was removed")
    able = [member for member in members if not member.nofailover]
    if leader is None and able and all(member.declined for member in able):
        yield Finding("members", False, "every participant's guard says no; see each member's reasons")


def _access(session: ZooKeeperSession, root: str) -> Iterator[Finding]:
    if session.config.auth is None:
        return
    try:
        differences = AclEnforcement(session, root).check()
    except LeaderError as exc:
        yield Finding("access lists", False, str(exc))
        return
    for difference in differences:
        yield Finding("access lists", False, str(difference))
    if not differences:
        yield Finding("access lists", True, "every node has the right list")


def _control(session: ZooKeeperSession, root: str, leader: LeaderInfo | None) -> Iterator[Finding]:
    try:
        control = read_control(session, root)
    except LeaderError as exc:
        yield Finding("control", False, str(exc))
        return
    if control.pause is not None:
        there = leader is not None and leader.participant.id == control.pause.leader_id
        yield Finding(
            "control",
            there,
            f"paused for {control.pause.leader_id} ({control.pause.reason})"
            + ("" if there else "; it does not lead, and no other may: end the pause with `resume`"),
        )
    if control.switchover is not None:
        wish = control.switchover
        yield Finding("control", True, f"switchover to {wish.to or 'the next'} asked for ({wish.reason})")
