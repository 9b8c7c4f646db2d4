"""Examines an election and says what is odd. Reads only; needs no leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from leader.core.participant.eligibility import read_cards
from leader.errors import LeaderError
from leader.protocol.participant import Card
from leader.protocol.paths import ElectionPaths
from leader.protocol.terms import LeaderInfo
from leader.protocol.view import ParticipantView
from leader.zookeeper.acl import AclEnforcement
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.operations import read_control, read_epoch, read_leader, read_participants
from leader.zookeeper.session import ZooKeeperSession


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Args:
        check: What was looked at.
        ok: Whether it is as it should be.
        detail: What was found, and what to do about it.
    """

    check: str
    ok: bool
    detail: str


def examine(session: ZooKeeperSession, root: str) -> list[Finding]:
    """Look at everything below `root`. ZooKeeperUnavailableError if there is no answer at all."""
    paths, findings = ElectionPaths(root), [_session(session)]
    try:
        epoch = read_epoch(session, root)
    except LeaderError as exc:
        findings.append(Finding("epoch", False, str(exc)))
    else:
        if epoch is None:
            findings.append(Finding("epoch", False, f"{paths.epoch} is missing: nobody has led here yet"))
            return findings
        findings.append(Finding("epoch", True, f"epoch {epoch.epoch}, schema {epoch.schema}"))
    try:
        leader = read_leader(session, root)
    except LeaderError as exc:
        leader = None
        findings.append(Finding("leader node", False, str(exc)))
    views = read_participants(session, root)
    cards = SessionExecutor(session).run(read_cards(paths))
    findings.append(_leader(leader, views))
    findings.extend(_queue(views))
    findings.extend(_members(cards, views, leader))
    findings.extend(_control(session, root, leader))
    findings.extend(_access(session, root))
    return findings


def _session(session: ZooKeeperSession) -> Finding:
    asked, granted = session.config.session_timeout, session.negotiated_timeout
    return Finding(
        "session timeout",
        asked == granted,
        f"asked for {asked.total_seconds():g} s, granted {granted.total_seconds():g} s"
        + ("" if asked == granted else "; the server's tickTime bounds it: set both to fit"),
    )


def _leader(leader: LeaderInfo | None, views: list[ParticipantView]) -> Finding:
    if leader is None:
        who = f"; first in the queue is {views[0].participant.id}" if views else "; the queue is empty"
        return Finding("leader", False, "nobody leads" + who)
    first = views[0].participant.id if views else None
    holds = first == leader.participant.id
    detail = f"{leader.participant.id} leads in epoch {leader.epoch}"
    if not holds:
        detail += (
            f", but the oldest latch is that of {first}: a hand-over is under way, or it has lost the lock"
        )
    return Finding("leader", holds, detail)


def _queue(views: list[ParticipantView]) -> Iterator[Finding]:
    yield Finding("queue", bool(views), f"{len(views)} in the queue")
    for participant_id, count in Counter(view.participant.id for view in views).items():
        if count > 1:
            yield Finding(
                "queue",
                False,
                f"{participant_id} stands in the queue {count} times: two processes with one id?",
            )
    strangers = [view.node for view in views if view.card is None]
    if strangers:
        yield Finding(
            "queue", False, f"latches without a card, as Curator's have none: {', '.join(strangers)}"
        )


def _members(cards: list[Card], views: list[ParticipantView], leader: LeaderInfo | None) -> Iterator[Finding]:
    queued = {view.participant.id for view in views}
    for card in sorted(cards, key=lambda card: card.rank):
        name, why = card.participant.id, "; ".join(card.reasons)
        if card.nofailover:
            yield Finding("member", True, f"{name} never leads (nofailover)")
        elif card.declined or card.rank.unready == 2:
            yield Finding("member", False, f"{name} is not ready: {why or 'no reason given'}")
        elif name not in queued:
            yield Finding("member", False, f"{name} is not in the queue; it backs off, or was removed")
    able = [card for card in cards if not card.nofailover]
    if leader is None and able and all(card.declined for card in able):
        yield Finding("members", False, "everybody declines: no guard says yes; see each member's reasons")


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
        yield Finding("access lists", True, "every node is closed to others")


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
            + ("" if there else "; it does not lead, and nobody else may: end the pause with `resume`"),
        )
    if control.switchover is not None:
        wish = control.switchover
        yield Finding("control", True, f"switchover to {wish.to or 'anybody'} wanted ({wish.reason})")
