"""Estimates a failover if the leader died now: its duration, and the attempts to adopt. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from nimbus.domain.terms import Term
from nimbus.domain.wording import counted, format_size

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
    """The expected time without a leader.

    Args:
        times: Detection times.
        terms: The newest terms.
        sync_s: Seconds until the successor has its missing files.
    """
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


def _missing(one: Candidate) -> str:
    if not one.missing_count:
        return f" ({one.lacks})" if one.lacks else ""
    left_s = one.missing_eta_s
    left = "" if left_s is None else f", which take about {left_s:.0f} s at the present speed"
    return f": it lacks {counted(one.missing_count, 'file')}, {format_size(one.missing_bytes)}{left}"
