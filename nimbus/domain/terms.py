"""Terms of leadership: who led in which epoch, from when until when, why it ended, and what was taken over.

A leader that ends in order closes its own term. One that died cannot, so its successor does, with the last
sign of life that the record has. Times are of the writer's wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nimbus.domain.commands import Abdication
from nimbus.domain.schedulers import SchedulerInfo

TERMS_KEPT = 200
"""In the cluster's store; those before are in history."""

HAND_OVER_TIME = timedelta(seconds=10)
"""A leader that lives so long after it accepted to hand over has not done so: its successor was gone."""

LONGEST_REASON = 500
"""Characters of it that are recorded."""


class EndCause(StrEnum):
    """Why a term ended."""

    RESIGNED = "resigned"
    """The leader was asked to hand over to the next in the queue."""
    HANDED_OVER = "handed_over"
    """It was asked to hand over to a scheduler that was named."""
    STOPPED = "stopped"
    """Its process was stopped in order, by SIGTERM or Ctrl-C."""
    FAILED = "failed"
    """Its engine failed, and gave the lead up."""
    LOST = "lost"
    """It lost the lock, and its process lives: it was cut off for a moment, or was refused a write."""
    DIED = "died"
    """Its session ended: the process or its host died, or was cut off for longer than the session timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Which process leads."""

    id: str
    """Of the scheduler."""
    host: str
    """Where others reach it."""
    boot_id: str
    """New with each start of the process."""
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What a new leader found, and what became of it."""

    runs: int = 0
    """That were not final."""
    claimed: int = 0
    """Open attempts with a driver, which went on."""
    unclaimed: int = 0
    """Open attempts whose driver had not begun."""
    ended: int = 0
    """Attempts that had ended without a leader: what their END says is believed."""
    fenced: int = 0
    """Of the open ones, those that this leader has given up since, as lost."""

    @property
    def attempts(self) -> int:
        """Those that were open."""
        return self.claimed + self.unclaimed


@dataclass(frozen=True, slots=True, kw_only=True)
class TermEnd:
    """How a term ended."""

    at: datetime
    """Exactly, if the leader wrote it; else the last sign of life."""
    cause: EndCause
    reason: str = ""
    """As it was typed, or as the leader said it."""
    by: str = ""
    """Who asked for it."""
    noted_by: int
    """The epoch whose leader wrote this: that of the term, or of a successor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One epoch in which a leader has decided something."""

    epoch: int
    leader: Leader
    began_at: datetime
    """Of its first decision."""
    seen_at: datetime
    """Its last sign of life, while it leads or was not seen to end; a leader gives one every few seconds."""
    before: int | None = None
    """Epoch of the newest term that was recorded before; None: there was no record."""
    gap_s: float | None = None
    """From the end of that one to `began_at`. If that leader died, at most: its last sign may be older."""
    takeover_s: float | None = None
    """From the confirmed lead to the state being read; None: it has not been read."""
    adopted: Adopted | None = None
    """None: the state has not been read."""
    decisions: int | None = None
    """That were written, as of `seen_at`; None: the leader's release did not count them."""
    end: TermEnd | None = None
    """None: it leads, or nobody has led since it died."""

    @property
    def unrecorded(self) -> int:
        """Epochs between this one and `before`: no guard accepted them, or a release without terms led."""
        return 0 if self.before is None else self.epoch - self.before - 1


def begun(leader: Leader, epoch: int, before: Term | None, now: datetime) -> Term:
    """The term that begins now. `before`: the newest recorded one, which has ended.

    Terms do not overlap, also when the clocks of two hosts differ.
    """
    if before is None or before.end is None:
        return Term(epoch=epoch, leader=leader, began_at=now, seen_at=now)
    began = max(now, before.end.at)
    gap_s = (began - before.end.at).total_seconds()
    return Term(epoch=epoch, leader=leader, began_at=began, seen_at=began, before=before.epoch, gap_s=gap_s)


def seen(term: Term, now: datetime) -> Term:
    """The term, with a sign of life."""
    return replace(term, seen_at=max(now, term.seen_at))


def ended(term: Term, cause: EndCause, now: datetime, *, reason: str = "", by: str = "") -> Term:
    """The term, ended by its own leader."""
    term = seen(term, now)
    said = reason[:LONGEST_REASON]
    end = TermEnd(at=term.seen_at, cause=cause, reason=said, by=by, noted_by=term.epoch)
    return replace(term, end=end)


def asked_for(abdication: Abdication | None, epoch: int, led_until: datetime) -> EndCause | None:
    """The cause of the end of an epoch if an abdication asked for it; None: it ended for another cause.

    A wish to hand over to a scheduler that leaves the queue at that moment is void, and the leader goes on.

    Args:
        abdication: The last one that was accepted, whatever its epoch.
        epoch: That has ended.
        led_until: The last sign of life of its leader.
    """
    if abdication is None or abdication.epoch != epoch:
        return None
    if not abdication.to:
        return EndCause.RESIGNED
    void = abdication.at is not None and led_until > abdication.at + HAND_OVER_TIME
    return None if void else EndCause.HANDED_OVER


def ended_by_successor(
    term: Term, epoch: int, abdication: Abdication | None, schedulers: Iterable[SchedulerInfo]
) -> Term:
    """The term of a leader that did not close it, as the leader of `epoch` finds it.

    Args:
        term: Without an end.
        epoch: Of the successor.
        abdication: The last one that was accepted, whatever its epoch.
        schedulers: Those that are registered now.
    """
    cause, reason, by = EndCause.DIED, "", ""
    there = {(one.id, one.boot_id): one for one in schedulers}
    asked = asked_for(abdication, term.epoch, term.seen_at)
    if abdication is not None and asked is not None:
        cause, reason, by = asked, abdication.reason, abdication.by
    elif (found := there.get((term.leader.id, term.leader.boot_id))) is not None:
        cause, reason = EndCause.LOST, found.last_abdication
    said = reason[:LONGEST_REASON]
    return replace(term, end=TermEnd(at=term.seen_at, cause=cause, reason=said, by=by, noted_by=epoch))
