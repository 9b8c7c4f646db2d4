"""The laws of the records of terms."""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.domain import writes as w
from nimbus.domain.cluster.terms import Term
from tests.nimbus.simulation.laws import Law, hold


class TermLaws:
    """See the module."""

    def __init__(self) -> None:
        self.kept: dict[int, Term] = {}
        """By epoch."""

    def committed(self, epoch: int, writes: Sequence[w.Write]) -> None:
        """Record a commit of the leader of an epoch."""
        for write in writes:
            match write:
                case w.CreateTerm(term):
                    self._created(epoch, term)
                case w.PutTerm(term):
                    self._put(epoch, term)
                case _:
                    continue
        hold(Law.TERMS, epoch in self.kept, "epoch", epoch, "decides without a term")

    def _created(self, epoch: int, term: Term) -> None:
        hold(Law.TERMS, term.epoch == epoch, "the leader of", epoch, "opens", term)
        newest = max(self.kept, default=None)
        hold(Law.TERMS, newest is None or newest < epoch, "opened after", newest, term)
        hold(Law.TERMS, term.before == newest, "opened after", newest, term)
        if newest is not None:
            end = self.kept[newest].end
            hold(Law.TERMS, end is not None and end.at <= term.began_at, self.kept[newest], "overlaps", term)
        self.kept[epoch] = term

    def _put(self, epoch: int, term: Term) -> None:
        before = self.kept[term.epoch]
        hold(Law.TERMS, before.end is None, "an end is changed:", before, term)
        hold(Law.TERMS, (before.began_at, before.leader) == (term.began_at, term.leader), before, term)
        if term.epoch != epoch:
            hold(Law.TERMS, term.epoch == max(self.kept) and term.end is not None, "changed by", epoch, term)
        if term.end is not None:
            hold(Law.TERMS, term.end.at >= term.began_at and term.end.noted_by == epoch, term)
        self.kept[term.epoch] = term
