"""The leader's own term, and the term before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nimbus.domain.ids import AttemptId
from nimbus.domain.run import Run
from nimbus.domain.slots import Slots
from nimbus.domain.terms import Adopted, Leader, Term


class TermKeeper:
    """The records of both terms, and counts for them. It lives as long as the reign."""

    def __init__(self, leader: Leader, elected_s: float) -> None:
        self.leader = leader
        self.elected_s = elected_s
        """When leadership was confirmed, in elapsed seconds."""
        self.own: Term | None = None
        """Our own term, as recorded."""
        self.before: Term | None = None
        """The newest term of another epoch."""
        self.found = Adopted()
        """Counts of the open work found so far, while the state is read."""
        self.decisions = 0
        """Number of decisions that this leader has written."""
        self.fenced: set[AttemptId] = set()
        """Attempts of earlier leaders that this leader has fenced."""

    def begin_reading(self) -> None:
        """Reset the counts, before everything is read again."""
        self.found = Adopted()

    def put(self, epoch: int, newest: Iterable[Term]) -> None:
        """Set the newest terms, as read."""
        terms = {term.epoch: term for term in newest}
        self.own = terms.pop(epoch, None)
        self.before = terms[max(terms)] if terms else None

    def count(self, runs: Iterable[Run], slots: Mapping[AttemptId, Slots]) -> None:
        """Count the open work in runs that were just read, before any decision about them."""
        found = self.found
        ended = sum(one.end is not None for one in slots.values())
        claimed = sum(one.end is None and one.claim is not None for one in slots.values())
        self.found = replace(
            found,
            runs=found.runs + sum(not run.state.is_final for run in runs),
            ended=found.ended + ended,
            claimed=found.claimed + claimed,
            unclaimed=found.unclaimed + len(slots) - ended - claimed,
        )

    def counted(self, term: Term) -> Term:
        """The term, with the current counts of decisions and fenced attempts."""
        term = replace(term, decisions=self.decisions)
        if term.adopted is None or term.adopted.fenced == len(self.fenced):
            return term
        return replace(term, adopted=replace(term.adopted, fenced=len(self.fenced)))
