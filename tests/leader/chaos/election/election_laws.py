"""The laws that the histories of all participants must obey after any faults. Pure.

Most laws are those of `tests.leader.election.laws`. This module adds two that need real processes: a
participant that was stopped for long is not a leader when it continues, and there is a leader in time after
each fault.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from tests.leader.chaos.election.history_lines import Did, Line
from tests.leader.election.history import Kind, Moment
from tests.leader.election.laws import check

_KINDS = {
    Did.CONFIRMED: Kind.CONFIRMED,
    Did.REVOKED: Kind.REVOKED,
    Did.OBSERVED: Kind.OBSERVED,
    Did.DENIED: Kind.DENIED,
    Did.WROTE: Kind.WROTE,
    Did.FENCED: Kind.FENCED,
}
_NEVER = timedelta(days=1_000)
"""No bound. Each `Due` says when there must be a leader, even if one fault follows another."""


@dataclass(frozen=True, slots=True)
class Due:
    """A time without a leader that begins before `until_ns` may last at most `bound_ns`."""

    what: str
    from_ns: int
    until_ns: int
    bound_ns: int


def judge(lines: Sequence[Line], played: Iterable[Moment], dues: Iterable[Due], session_ns: int) -> list[str]:
    """Broken laws; empty if there are none.

    Args:
        lines: The histories of all participants.
        played: The injected faults.
        dues: When there had to be a leader.
        session_ns: Length of a session. If a participant did not ask for longer, its next answer must be no.
    """
    history = [*map(_moment, (line for line in lines if line.did in _KINDS)), *played]
    return [
        *map(str, check(history, bound=_NEVER)),
        *_leading_out_of_sleep(lines, session_ns),
        *_nobody(lines, dues),
    ]


def wakings(lines: Iterable[Line], session_ns: int) -> list[Line]:
    """The first answers of `is_leader()` after a gap longer than a session."""
    asked = (line for line in lines if line.did in (Did.OBSERVED, Did.DENIED))
    return [line for line in asked if line.gap_ns is not None and line.gap_ns > session_ns]


def moment_of(kind: Kind, who: str, from_ns: int, to_ns: int, *, of: Line | None = None) -> Moment:
    """A time between two readings of the clock at which a fault hit the leadership of `of`."""
    return Moment(
        at=_earlier(from_ns),
        participant=who,
        kind=kind,
        epoch=None if of is None else of.epoch,
        until=_later(to_ns),
        boot="" if of is None else of.boot,
    )


def _moment(line: Line) -> Moment:
    return Moment(
        at=_earlier(line.before_ns),
        participant=line.name,
        kind=_KINDS[line.did],
        epoch=line.epoch,
        until=_later(line.after_ns),
        boot=line.boot,
        order=line.zxid,
        note=line.why,
    )


def _earlier(at_ns: int) -> timedelta:
    return timedelta(microseconds=at_ns // 1_000)


def _later(at_ns: int) -> timedelta:
    return timedelta(microseconds=-(-at_ns // 1_000))


def _leading_out_of_sleep(lines: Sequence[Line], session_ns: int) -> Iterator[str]:
    """A participant that did not ask for longer than a session must first learn that it does not lead."""
    for line in wakings(lines, session_ns):
        if line.did is Did.OBSERVED:
            yield f"{line.name} leads after {(line.gap_ns or 0) / 1e9:.3f} s without a question"


def _nobody(lines: Iterable[Line], dues: Iterable[Due]) -> Iterator[str]:
    observed = sorted(line.after_ns for line in lines if line.did is Did.OBSERVED)
    for due in dues:
        inside = observed[bisect_left(observed, due.from_ns) : bisect_right(observed, due.until_ns)]
        after = observed[bisect_right(observed, due.until_ns) :][:1] or [due.until_ns]
        longest_ns = max(end - begin for begin, end in pairwise([due.from_ns, *inside, *after]))
        if longest_ns > due.bound_ns:
            yield f"nobody led for {longest_ns / 1e9:.1f} s, not {due.bound_ns / 1e9:.1f}, after {due.what}"
