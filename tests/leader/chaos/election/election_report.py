"""The results of a run with faults, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from tests.leader.chaos.election.election_driver import Outcome, Round
from tests.leader.chaos.election.election_laws import wakings
from tests.leader.chaos.election.history_lines import Did, Line
from tests.report import spread


def report(outcome: Outcome, lines: Sequence[Line]) -> list[str]:
    """Lines of text."""
    kinds = Counter(each.kind for each in outcome.rounds)
    takeovers: dict[str, list[float]] = {kind: [] for kind in kinds}
    gaps: dict[str, list[float]] = {kind: [] for kind in kinds}
    observed = sorted((line for line in lines if line.did is Did.OBSERVED), key=lambda line: line.after_ns)
    for each in outcome.rounds:
        change = _change(each, observed)
        if change is not None:
            before, after = change
            takeovers[each.kind].append(max(0.0, (after.after_ns - each.faults[0].by_ns) / 1e9))
            gaps[each.kind].append((after.before_ns - before.after_ns) / 1e9)
    head = f"{'fault':<21}{'rounds':>7}{'leader changed':>16}"
    head += f"{'takeover s (min/median/max)':>30}{'no leader s (min/median/max)':>31}"
    table = [
        f"{kind:<21}{kinds[kind]:>7}{len(gaps[kind]):>16}{spread(takeovers[kind]):>30}{spread(gaps[kind]):>31}"
        for kind in sorted(kinds)
    ]
    return [
        f"seed {outcome.seed}, session {outcome.session.total_seconds():g} s",
        head,
        *table,
        *_totals(outcome, lines),
    ]


def _change(each: Round, observed: Sequence[Line]) -> tuple[Line, Line] | None:
    """The last answer of the leader before a round, and the first of the next one, if the term changed."""
    before = [line for line in observed if line.after_ns <= each.began_ns][-1:]
    during = [line for line in observed if each.began_ns < line.after_ns <= each.ended_ns]
    for one, other in pairwise([*before, *during]):
        if (one.name, one.boot, one.epoch) != (other.name, other.boot, other.epoch):
            return one, other
    return None


def _totals(outcome: Outcome, lines: Sequence[Line]) -> list[str]:
    count = Counter(line.did for line in lines)
    terms = {(line.name, line.boot, line.epoch) for line in lines if line.did is Did.CONFIRMED}
    faults = [fault for each in outcome.rounds for fault in each.faults]
    woken = wakings(lines, int(outcome.session.total_seconds() * 1e9))
    denied = sum(line.did is Did.DENIED for line in woken)
    missed = sum(not fault.done for fault in faults)
    played = f"{len(faults)} faults in {len(outcome.rounds)} rounds ({missed} traps met no request)"
    epochs = f"{len(terms)} leaderships, highest epoch {max((line.epoch or 0 for line in lines), default=0)}"
    writes = ", ".join(
        f"{count[did]} {words}"
        for did, words in ((Did.WROTE, "accepted"), (Did.FENCED, "refused"), (Did.UNKNOWN, "without answer"))
    )
    return [
        f"{played}; {epochs}",
        f"{count[Did.OBSERVED]} answers True; fenced writes: {writes}",
        f"first answer after more than a session without a question: False {denied} of {len(woken)}",
        f"violations: {len(outcome.wrong)}",
        *(f"  {each}" for each in outcome.wrong[:20]),
    ]
