"""What the leader knows of its own term and of the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nimbus.domain.ids import AttemptId
from nimbus.domain.run import Run
from nimbus.domain.slots import Slots
from nimbus.domain.terms import Adopted, Leader, Term


class TermKeeper:
    """See the module. Lives as long as the reign, through all readings of the state."""

    def __init__(self, leader: Leader, elected_s: float) -> None:
        self.leader = leader
        self.elected_s = elected_s
        """When the lead was confirmed, in elapsed seconds."""
        self.own: Term | None = None
        """As it is recorded."""
        self.before: Term | None = None
        """The newest one of another epoch."""
        self.found = Adopted()
        """While the state is read: what there was so far."""
        self.decisions = 0
        """That this leader has written."""
        self.fenced: set[AttemptId] = set()
        """Attempts of leaders before that this one has given up."""

    def begin_reading(self) -> None:
        """Everything is read anew."""
        self.found = Adopted()

    def put(self, epoch: int, newest: Iterable[Term]) -> None:
        """Take in the newest terms, as read."""
        terms = {term.epoch: term for term in newest}
        self.own = terms.pop(epoch, None)
        self.before = terms[max(terms)] if terms else None

    def count(self, runs: Iterable[Run], slots: Mapping[AttemptId, Slots]) -> None:
        """Count what was read of the state before anything was decided about it."""
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
        """The term, with what was decided and fenced so far."""
        term = replace(term, decisions=self.decisions)
        if term.adopted is None or term.adopted.fenced == len(self.fenced):
            return term
        return replace(term, adopted=replace(term.adopted, fenced=len(self.fenced)))
