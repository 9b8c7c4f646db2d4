"""The laws of `tests.leader.election.history`, one function for each, and `check`, which checks all of them.

Each law takes a history sorted by `at`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from tests.leader.election.history import Kind, Law, Moment, Violation

Process = tuple[str, str]
"""Name of a participant and its boot."""


@dataclass(slots=True)
class Spell:
    """One leadership as its user saw it: from the first answer True to the last one.

    No epoch is used twice, so a participant that leads in an epoch at two times leads all the time between.
    """

    first: Moment
    last: Moment
    begun_by: timedelta
    """Time at which it had certainly begun."""
    lasted_to: timedelta
    """Time at which it had certainly not ended."""


def check(history: list[Moment], *, bound: timedelta, guarded: bool = False) -> list[Violation]:
    """Check a history.

    Args:
        history: The moments, in any order.
        bound: Longest time from HEALED until there is a leader. Not checked if a FAULT or the end of the
            history comes earlier.
        guarded: True if the history has the answers of all guards. False: participants without any answer
            are not checked.

    Returns:
        Every certain violation; an empty list if there is none.
    """
    ordered = sorted(history, key=lambda moment: moment.at)
    return [
        *one_leader(ordered),
        *epochs_rise(ordered),
        *told_in_turn(ordered),
        *revoked_is_over(ordered),
        *guards_agreed(ordered, all_are=guarded),
        *fenced(ordered),
        *somebody_leads(ordered, bound),
        *never_at_all(ordered),
    ]


def one_leader(history: list[Moment]) -> Iterator[Violation]:
    """Law.ONE_LEADER."""
    spells = _spells(history)
    deposed = [moment for moment in history if moment.kind is Kind.DEPOSED]
    running: list[Spell] = []
    for spell in sorted(spells, key=lambda one: one.begun_by):
        running = [one for one in running if one.lasted_to >= spell.begun_by]
        for other in running:
            if spell.lasted_to < other.begun_by or _is_excused(other, spell, deposed):
                continue
            yield Violation(Law.ONE_LEADER, (other.first, spell.first, other.last, spell.last))
        running.append(spell)


def epochs_rise(history: list[Moment]) -> Iterator[Violation]:
    """Law.EPOCHS_RISE. For all participants between two deletions of the data; for one process, always.

    A participant that does not know yet that it was deposed may be confirmed late, in an epoch that is over.
    """
    confirmed = [moment for moment in history if moment.kind is Kind.CONFIRMED]
    deposed = [moment for moment in history if moment.kind is Kind.DEPOSED]
    by_process: defaultdict[Process, list[Moment]] = defaultdict(list)
    for moment in confirmed:
        by_process[_process(moment)].append(moment)
    found = [fault for moments in by_process.values() for fault in _not_rising(moments)]
    for era in _eras(history, confirmed):
        knowing = [one for one in era if not any(_covers(moment, one) for moment in deposed)]
        found.extend(fault for fault in _not_rising(knowing) if not _of_one_process(fault))
    yield from found


def told_in_turn(history: list[Moment]) -> Iterator[Violation]:
    """Law.TOLD_IN_TURN. A process that died gets no more calls."""
    leading: dict[Process, Moment | None] = {}
    for moment in history:
        now = leading.get(_process(moment))
        if moment.kind is Kind.CONFIRMED:
            if now is not None:
                yield Violation(Law.TOLD_IN_TURN, (now, moment))
            leading[_process(moment)] = moment
        elif moment.kind is Kind.REVOKED:
            if now is None or now.epoch != moment.epoch:
                yield Violation(Law.TOLD_IN_TURN, (moment,) if now is None else (now, moment))
            leading[_process(moment)] = None


def revoked_is_over(history: list[Moment]) -> Iterator[Violation]:
    """Law.REVOKED_IS_OVER."""
    over: dict[tuple[Process, int | None], Moment] = {}
    for moment in history:
        key = (_process(moment), moment.epoch)
        if moment.kind is Kind.REVOKED:
            over[key] = moment
        elif moment.kind is Kind.OBSERVED and key in over and over[key].end < moment.at:
            yield Violation(Law.REVOKED_IS_OVER, (over.pop(key), moment))


def guards_agreed(history: list[Moment], *, all_are: bool) -> Iterator[Violation]:
    """Law.GUARDED. Checked for the processes whose guards' answers are in the history, or for all."""
    judges = {_process(m) for m in history if m.kind in (Kind.APPROVED, Kind.REFUSED)}
    approved: set[tuple[Process, int | None]] = set()
    for moment in history:
        key = (_process(moment), moment.epoch)
        if moment.kind is Kind.APPROVED:
            approved.add(key)
        elif (
            moment.kind in (Kind.CONFIRMED, Kind.OBSERVED, Kind.PUBLISHED)
            and (all_are or key[0] in judges)
            and key not in approved
        ):
            approved.add(key)  # report it once
            yield Violation(Law.GUARDED, (moment,))


def fenced(history: list[Moment]) -> Iterator[Violation]:
    """Law.FENCED."""
    accepted = [moment for moment in history if moment.kind in (Kind.WROTE, Kind.TAKEN)]
    for era in _eras(history, accepted):
        if all(moment.order is not None for moment in era):
            yield from _fenced_by_order(era)
        else:
            yield from _fenced_by_time(era)


def somebody_leads(history: list[Moment], bound: timedelta) -> Iterator[Violation]:
    """Law.SOMEBODY_LEADS."""
    ends = max((moment.end for moment in history), default=timedelta(0))
    faults = [moment.at for moment in history if moment.kind is Kind.FAULT]
    seen = [moment.at for moment in history if moment.kind is Kind.OBSERVED]
    for healed in (moment for moment in history if moment.kind is Kind.HEALED):
        limit = healed.end + bound
        if limit > ends or bisect_right(faults, limit) > bisect_right(faults, healed.at):
            continue
        if bisect_right(seen, limit) == bisect_left(seen, healed.end):
            yield Violation(Law.SOMEBODY_LEADS, (healed,), f"no leader within {bound.total_seconds():g} s")


_NEVER = {
    Kind.ORPHAN: Law.NO_ORPHANS,
    Kind.ABSENT: Law.NOBODY_GIVES_UP,
    Kind.MISLED: Law.PUBLISHED_TRULY,
    Kind.OUTLIVED: Law.ENDS_WITH_SESSION,
    Kind.CRASHED: Law.NEVER_RAISES,
}


def never_at_all(history: list[Moment]) -> Iterator[Violation]:
    """The laws that forbid a kind of event."""
    for moment in history:
        law = _NEVER.get(moment.kind)
        if law is not None:
            yield Violation(law, (moment,))


# --- helpers ------------------------------------------------------------------------------------


def _process(moment: Moment) -> Process:
    return moment.participant, moment.boot


def _spells(history: list[Moment]) -> list[Spell]:
    spells: dict[tuple[Process, int | None], Spell] = {}
    for moment in history:
        if moment.kind is not Kind.OBSERVED:
            continue
        key = (_process(moment), moment.epoch)
        spell = spells.get(key)
        if spell is None:
            spells[key] = Spell(moment, moment, moment.end, moment.at)
            continue
        spell.begun_by = min(spell.begun_by, moment.end)
        spell.last, spell.lasted_to = moment, moment.at
    return list(spells.values())


def _is_excused(one: Spell, other: Spell, deposed: list[Moment]) -> bool:
    begins, ends = max(one.begun_by, other.begun_by), min(one.lasted_to, other.lasted_to)
    return any(
        moment.at <= begins
        and ends <= moment.end
        and any(
            _process(moment) == _process(spell.first) and moment.epoch in (None, spell.first.epoch)
            for spell in (one, other)
        )
        for moment in deposed
    )


def _covers(deposed: Moment, confirmed: Moment) -> bool:
    return _process(deposed) == _process(confirmed) and deposed.at <= confirmed.at <= deposed.end


def _eras(history: list[Moment], moments: list[Moment]) -> Iterator[list[Moment]]:
    """Split `moments` at each deletion of the data. Moments that may be on either side are left out."""
    births = [moment for moment in history if moment.kind is Kind.REBORN]
    sure = [one for one in moments if not any(_straddles(one, birth) for birth in births)]
    for _, era in groupby(sure, key=lambda one: sum(birth.end <= one.at for birth in births)):
        yield list(era)


def _straddles(moment: Moment, birth: Moment) -> bool:
    return moment.end >= birth.at and moment.at < birth.end


def _not_rising(moments: list[Moment]) -> Iterator[Violation]:
    highest: Moment | None = None
    for moment in sorted(moments, key=lambda one: one.end):
        if highest is None or (moment.epoch or 0) > (highest.epoch or 0):
            highest = moment
        elif moment.epoch == highest.epoch or highest.end < moment.at:
            yield Violation(Law.EPOCHS_RISE, (highest, moment))


def _of_one_process(fault: Violation) -> bool:
    first, second = fault.moments
    return _process(first) == _process(second)


def _fenced_by_order(era: list[Moment]) -> Iterator[Violation]:
    newest: Moment | None = None
    for moment in sorted(era, key=lambda one: one.order or 0):
        if newest is not None and (moment.epoch or 0) < (newest.epoch or 0):
            if moment.kind is Kind.WROTE:
                yield Violation(Law.FENCED, (newest, moment))
        else:
            newest = moment


def _fenced_by_time(era: list[Moment]) -> Iterator[Violation]:
    by_end = sorted(era, key=lambda one: one.end)
    ends = [moment.end for moment in by_end]
    newest: list[Moment] = []  # the moment with the highest epoch so far
    for moment in by_end:
        higher = not newest or (moment.epoch or 0) > (newest[-1].epoch or 0)
        newest.append(moment if higher else newest[-1])
    for moment in era:
        before = bisect_left(ends, moment.at)
        if moment.kind is Kind.WROTE and before and (newest[before - 1].epoch or 0) > (moment.epoch or 0):
            yield Violation(Law.FENCED, (newest[before - 1], moment))
