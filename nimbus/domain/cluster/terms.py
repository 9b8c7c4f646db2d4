"""Terms of leadership: the leader of each epoch, its begin and end, the cause, and what it adopted. Pure.

A leader that ends in order closes its own term. The term of a leader that died is closed by its successor,
at the last sign of life in the record. Times are from the writer's wall clock. The take-overs of the newest
terms give the estimate of a failover: its duration, and the attempts to adopt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.commands import Abdication
from nimbus.domain.wording import counted, format_size

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
    there = {(scheduler.id, scheduler.boot_id): scheduler for scheduler in schedulers}
    asked = asked_for(abdication, term.epoch, term.seen_at)
    if abdication is not None and asked is not None:
        cause, reason, by = asked, abdication.reason, abdication.by
    elif (scheduler := there.get((term.leader.id, term.leader.boot_id))) is not None:
        cause, reason = EndCause.LOST, scheduler.last_abdication
    said = reason[:LONGEST_REASON]
    return replace(term, end=TermEnd(at=term.seen_at, cause=cause, reason=said, by=by, noted_by=epoch))


TERMS_LOOKED_AT = 20
"""How many of the newest terms are used to measure take-overs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scheduler in the queue behind the leader."""

    id: str
    ready: bool
    registered: bool = True
    """False: it is in the queue, but has no registration, so its missing files are unknown."""
    lacks: str = ""
    """See `SchedulerInfo.lacks`."""
    missing_count: int = 0
    missing_bytes: int = 0
    missing_eta_s: float | None = None
    """Seconds until it has its missing files; None: not known."""

    @property
    def ready_in_s(self) -> float | None:
        """Seconds until it is ready; None: not known."""
        return 0.0 if self.ready else self.missing_eta_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverTimes:
    """What decides how long it takes to detect a dead leader."""

    session_timeout_s: float
    has_sentinel: bool
    """True: the leader has a crash sentinel, which ends the session of a dead process at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The time without a leader in a failover."""

    noticed_s: float
    """Seconds until the dead leader's session has ended, if its host is alive; 0.0: milliseconds."""
    noticed_at_most_s: float
    """The same if its host is lost, or the sentinel dies, too: the session timeout."""
    sync_s: float = 0.0
    """Seconds until the successor has its missing files."""
    takeovers: int
    """Number of measured take-overs."""
    takeover_s: float | None
    """Median of their durations, from confirmed leadership until the state is read."""
    takeover_at_most_s: float | None
    """The longest duration of them."""

    @property
    def expected_s(self) -> float | None:
        """Expected seconds without a leader; None: no take-over was measured."""
        return None if self.takeover_s is None else max(self.noticed_s, self.sync_s) + self.takeover_s

    @property
    def at_most_s(self) -> float | None:
        """Upper bound in seconds; None: no take-over is measured, or the successor is not ready."""
        if self.takeover_at_most_s is None or self.sync_s:
            return None
        return self.noticed_at_most_s + self.takeover_at_most_s

    @property
    def made_of(self) -> str:
        """How the figures were computed, in a sentence."""
        noticed = (
            f"the crash sentinel ends a dead leader's session at once; if its host is lost, "
            f"the session timeout of {self.noticed_at_most_s:g} s does"
            if self.noticed_s < self.noticed_at_most_s
            else f"no crash sentinel of the leader runs, so the session timeout of "
            f"{self.noticed_at_most_s:g} s ends a dead leader's session"
        )
        if self.sync_s:
            noticed += f"; what the successor lacks takes about {self.sync_s:.0f} s more at the present speed"
        if self.takeover_s is None or self.takeover_at_most_s is None:
            return f"{noticed}; no take-over has been measured yet"
        return (
            f"{noticed}; the last {self.takeovers} take-overs took {self.takeover_s:.3f} s (median), "
            f"{self.takeover_at_most_s:.3f} s at most"
        )


def gap(times: FailoverTimes, terms: Iterable[Term], sync_s: float = 0.0) -> Gap:
    """The expected time without a leader. `sync_s`: Seconds until the successor has its missing files."""
    took = [term.takeover_s for term in terms if term.takeover_s is not None]
    return Gap(
        noticed_s=0.0 if times.has_sentinel else times.session_timeout_s,
        noticed_at_most_s=times.session_timeout_s,
        sync_s=sync_s,
        takeovers=len(took),
        takeover_s=median(took) if took else None,
        takeover_at_most_s=max(took, default=None),
    )


def in_words(
    next_leader: Candidate | None, expected: Gap | None, open_attempts: int, *, is_led: bool = True
) -> str:
    """The estimate as text. `is_led`: there is a leader now."""
    now = "If the leader died now," if is_led else "Nobody leads now:"
    if next_leader is None:
        return f"{now} nobody would lead: no other scheduler is in the queue."
    adopts = f"adopt {counted(open_attempts, 'open attempt')}"
    after = (
        "" if expected is None or expected.expected_s is None else f" after about {expected.expected_s:.1f} s"
    )
    if not next_leader.registered:
        return (
            f"{now} {next_leader.id} would be next, but it is not registered: its missing files are unknown."
        )
    if not next_leader.ready:
        return (
            f"{now} {next_leader.id} would be next, but it is not ready{_missing(next_leader)}. "
            f"It would {adopts}{after}, once its guard lets it lead."
        )
    return f"{now} {next_leader.id}, which is ready, would lead{after} and {adopts}."


def _missing(candidate: Candidate) -> str:
    if not candidate.missing_count:
        return f" ({candidate.lacks})" if candidate.lacks else ""
    left_s = candidate.missing_eta_s
    left = "" if left_s is None else f", which take about {left_s:.0f} s at the present speed"
    return (
        f": it lacks {counted(candidate.missing_count, 'file')}, {format_size(candidate.missing_bytes)}{left}"
    )
