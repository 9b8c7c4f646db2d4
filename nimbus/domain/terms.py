"""Terms of leadership: the leader of each epoch, its begin and end, the cause, and what it adopted.

A leader that ends in order closes its own term. The term of a leader that died is closed by its successor,
at the last sign of life in the record. Times are from the writer's wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nimbus.domain.commands import Abdication
from nimbus.domain.schedulers import SchedulerInfo

TERMS_KEPT = 200
"""Limit of terms in the cluster's store; older ones are in history."""

HAND_OVER_TIME = timedelta(seconds=10)
"""A leader that is alive this long after it accepted a handover did not hand over: its successor was gone."""

LONGEST_REASON = 500
"""Limit of a recorded reason, in characters."""


class EndCause(StrEnum):
    """Why a term ended."""

    RESIGNED = "resigned"
    """The leader was asked to hand over to the next scheduler in the queue."""
    HANDED_OVER = "handed_over"
    """The leader was asked to hand over to a named scheduler."""
    STOPPED = "stopped"
    """Its process was stopped in order, by SIGTERM or Ctrl-C."""
    FAILED = "failed"
    """Its engine failed and abdicated."""
    LOST = "lost"
    """It lost the lock, and its process lives: it was disconnected for a moment, or a write was refused."""
    DIED = "died"
    """Its session ended: the process or host died, or was disconnected longer than the session timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The process that leads."""

    id: str
    """Id of the scheduler."""
    host: str
    """Host at which others reach it."""
    boot_id: str
    """New with each start of the process."""
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """The open work that a new leader found, and its fate."""

    runs: int = 0
    """Number of runs that were not final."""
    claimed: int = 0
    """Number of open attempts with a driver, which went on."""
    unclaimed: int = 0
    """Number of open attempts whose driver had not begun."""
    ended: int = 0
    """Number of attempts that had ended while there was no leader. Their END is applied."""
    fenced: int = 0
    """Number of the open attempts that this leader has fenced since, as lost."""

    @property
    def attempts(self) -> int:
        """Number of attempts that were open."""
        return self.claimed + self.unclaimed


@dataclass(frozen=True, slots=True, kw_only=True)
class TermEnd:
    """How a term ended."""

    at: datetime
    """The exact time, if the leader itself wrote it; otherwise its last sign of life."""
    cause: EndCause
    reason: str = ""
    """The reason that a person typed, or that the leader gave."""
    by: str = ""
    """The name of the requester."""
    noted_by: int
    """Epoch of the leader that wrote this record: that of the term, or of a successor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One epoch in which a leader has decided something."""

    epoch: int
    leader: Leader
    began_at: datetime
    """Time of its first decision."""
    seen_at: datetime
    """The last sign of life of its leader, which writes one every few seconds."""
    before: int | None = None
    """Epoch of the newest term that was recorded before; None: there was no record."""
    gap_s: float | None = None
    """Seconds from the end of `before` to `began_at`. If that leader died, this is an upper bound."""
    takeover_s: float | None = None
    """Seconds from confirmed leadership until the state was read; None: it is not read yet."""
    adopted: Adopted | None = None
    """None: the state is not read yet."""
    decisions: int | None = None
    """Number of written decisions at `seen_at`; None: the leader's release did not count them."""
    end: TermEnd | None = None
    """None: it still leads, or it died and no successor has led yet."""

    @property
    def unrecorded(self) -> int:
        """Number of epochs since `before` without a record: a guard refused."""
        return 0 if self.before is None else self.epoch - self.before - 1


def begun(leader: Leader, epoch: int, before: Term | None, now: datetime) -> Term:
    """The term that begins now. `before`: the newest recorded term, which has ended.

    Terms do not overlap, even when the clocks of two hosts differ.
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
    """The cause of an epoch's end if an abdication requested it; None: it ended for another cause.

    If the named successor leaves the queue at that moment, the request is void and the leader goes on.

    Args:
        abdication: The last one that was accepted, whatever its epoch.
        epoch: The epoch that has ended.
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
    """The term of a leader that did not close it, closed by the leader of `epoch`.

    Args:
        term: A term without an end.
        epoch: Epoch of the successor.
        abdication: The last one that was accepted, whatever its epoch.
        schedulers: The registered schedulers.
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
