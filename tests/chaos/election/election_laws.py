"""What the histories of all participants must be like, whatever happened. Pure.

All judgements are made without doubt: two things are held against each other only where one began after the
other had ended, by the clock that all processes share, or by ZooKeeper's own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from tests.chaos.election.history_lines import Did, Line

_LEADING = (Did.CONFIRMED, Did.OBSERVED, Did.WROTE)


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """One leadership.

    Args:
        era: How often ZooKeeper's data had been lost before it; epochs may begin anew then.
        epoch: Its number.
        name: Of the participant.
        boot: Of its process.
    """

    era: int
    epoch: int
    name: str
    boot: str

    def __str__(self) -> str:
        era = f" of era {self.era}" if self.era else ""
        return f"epoch {self.epoch}{era} ({self.name}/{self.boot[:4]})"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sign that somebody leads, and which leadership it belongs to."""

    term: Term
    line: Line


@dataclass(frozen=True, slots=True)
class Due:
    """Somebody must lead within `bound_ns` of `from_ns`."""

    what: str
    from_ns: int
    bound_ns: int


def claims(lines: Iterable[Line], reborn_ns: Sequence[int] = ()) -> list[Claim]:
    """All signs of leadership, with the leadership each belongs to.

    Args:
        lines: Of all participants.
        reborn_ns: When ZooKeeper's data began anew. A leadership belongs to the era of its first sign.
    """
    leading = [line for line in lines if line.did in _LEADING and line.epoch is not None]
    ordered = sorted(leading, key=lambda line: (line.name, line.boot, line.epoch))
    found = []
    for (name, boot, epoch), group in groupby(ordered, key=lambda line: (line.name, line.boot, line.epoch)):
        own = list(group)
        first_ns = min(line.before_ns for line in own)
        term = Term(sum(at <= first_ns for at in reborn_ns), epoch or 0, name, boot)
        found += [Claim(term, line) for line in own]
    return found


def judge(lines: Sequence[Line], reborn_ns: Sequence[int], dues: Iterable[Due], session_ns: int) -> list[str]:
    """What is wrong; empty: nothing.

    Args:
        lines: Of all participants.
        reborn_ns: See `claims`.
        dues: When somebody had to lead.
        session_ns: Length of a session. Who did not ask for longer, must be denied.
    """
    found = claims(lines, reborn_ns)
    return [
        *_shared_epochs(found),
        *_forgetful(found),
        *_overlaps(found),
        *_late_writes(found),
        *_writes_out_of_order(found),
        *_leading_out_of_sleep(lines, session_ns),
        *_nobody(lines, dues),
    ]


def wakings(lines: Iterable[Line], session_ns: int) -> list[Line]:
    """The first answers of `is_leader()` after a gap longer than a session."""
    asked = (line for line in lines if line.did in (Did.OBSERVED, Did.DENIED))
    return [line for line in asked if line.gap_ns is not None and line.gap_ns > session_ns]


def _shared_epochs(found: Sequence[Claim]) -> Iterator[str]:
    """An epoch has one leader."""
    terms = sorted({claim.term for claim in found})
    for one, other in pairwise(terms):
        if (one.era, one.epoch) == (other.era, other.epoch):
            yield f"{one} and {other} share an epoch"


def _forgetful(found: Sequence[Claim]) -> Iterator[str]:
    """A process takes no epoch below one that it has held, whatever became of ZooKeeper's data."""
    ordered = sorted(found, key=lambda claim: (claim.term.name, claim.term.boot, claim.line.before_ns))
    for _, group in groupby(
        (claim for claim in ordered if claim.line.did is Did.CONFIRMED),
        key=lambda claim: (claim.term.name, claim.term.boot),
    ):
        for before, after in pairwise(claim.term for claim in group):
            if after.epoch <= before.epoch:
                yield f"{after} was taken after {before} by the same process"


def _overlaps(found: Sequence[Claim]) -> Iterator[str]:
    """Once somebody leads, nobody of an older epoch answers True: neither overlap nor falling epochs."""
    first: dict[Term, int] = {}
    last: dict[Term, int] = {}
    for claim in found:
        first[claim.term] = min(first.get(claim.term, claim.line.after_ns), claim.line.after_ns)
        if claim.line.did is Did.OBSERVED:
            last[claim.term] = max(last.get(claim.term, 0), claim.line.before_ns)
    for older, newer in _ordered_pairs(first):
        late_ns = last.get(older, 0) - first[newer]
        if late_ns > 0:
            yield f"{older} said that it leads {late_ns / 1e6:.3f} ms after {newer} had begun to"


def _late_writes(found: Sequence[Claim]) -> Iterator[str]:
    """Once somebody leads, no write of an older epoch is accepted that was begun after that."""
    first: dict[Term, int] = {}
    for claim in found:
        first[claim.term] = min(first.get(claim.term, claim.line.after_ns), claim.line.after_ns)
    for claim in found:
        if claim.line.did is not Did.WROTE:
            continue
        for newer, began_ns in first.items():
            if (claim.term.era, claim.term.epoch) < (
                newer.era,
                newer.epoch,
            ) and claim.line.before_ns > began_ns:
                yield f"a write of {claim.term}, begun after {newer} had begun to lead, was accepted"


def _writes_out_of_order(found: Sequence[Claim]) -> Iterator[str]:
    """In ZooKeeper's order, no write of an older epoch follows one of a newer."""
    writes = [claim for claim in found if claim.line.zxid is not None]
    for _, group in groupby(sorted(writes, key=_written), key=lambda claim: claim.term.era):
        for before, after in pairwise(group):
            if after.term.epoch < before.term.epoch:
                yield f"a write of {after.term} was accepted after one of {before.term}"


def _written(claim: Claim) -> tuple[int, int]:
    return claim.term.era, claim.line.zxid or 0


def _leading_out_of_sleep(lines: Sequence[Line], session_ns: int) -> Iterator[str]:
    """Who did not ask for longer than a session, is first told that it does not lead."""
    for line in wakings(lines, session_ns):
        if line.did is Did.OBSERVED:
            yield f"{line.name} leads after {(line.gap_ns or 0) / 1e9:.3f} s without a question"


def _nobody(lines: Iterable[Line], dues: Iterable[Due]) -> Iterator[str]:
    observed = sorted(line.after_ns for line in lines if line.did is Did.OBSERVED)
    for due in dues:
        if not any(due.from_ns <= at <= due.from_ns + due.bound_ns for at in observed):
            yield f"nobody led within {due.bound_ns / 1e9:.1f} s of {due.what}"


def _ordered_pairs(terms: Iterable[Term]) -> Iterator[tuple[Term, Term]]:
    ordered = sorted(terms)
    for position, older in enumerate(ordered):
        for newer in ordered[position + 1 :]:
            if (older.era, older.epoch) != (newer.era, newer.epoch):
                yield older, newer
