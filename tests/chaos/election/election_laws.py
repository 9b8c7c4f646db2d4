"""The laws that the histories of all participants must obey after any faults. Pure.

Most laws are those of `tests.election.laws`; here stand those that a test with real processes adds: who
has slept wakes as no leader, and somebody leads when somebody must.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from tests.chaos.election.history_lines import Did, Line
from tests.election.history import Kind, Moment
from tests.election.laws import check

_KINDS = {
    Did.CONFIRMED: Kind.CONFIRMED,
    Did.REVOKED: Kind.REVOKED,
    Did.OBSERVED: Kind.OBSERVED,
    Did.DENIED: Kind.DENIED,
    Did.WROTE: Kind.WROTE,
    Did.FENCED: Kind.FENCED,
}
_NEVER = timedelta(days=1_000)
"""As a bound: `Due` says when somebody must lead, also where one fault follows the other."""


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
        lines: Of all participants.
        played: What was done to them.
        dues: When somebody had to lead.
        session_ns: Length of a session. Who did not ask for longer, must be denied.
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
    """Something that was done between two readings of the clock; to the leadership that `of` is about."""
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
    """Who did not ask for longer than a session, is first told that it does not lead."""
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
