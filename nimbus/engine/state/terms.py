"""Updates the records of terms."""

from __future__ import annotations

from collections.abc import Iterable

from nimbus.domain.terms import Term
from nimbus.engine.agenda import ABOUT_TERM
from nimbus.engine.state.facts import Facts


class Terms(Facts):
    """This term and the one before."""

    def put_terms(self, newest: Iterable[Term]) -> None:
        """Set the newest terms, as read."""
        if self.terms is not None:
            self.terms.put(self.epoch, newest)
            self.agenda.add(ABOUT_TERM)

    def _put_term(self, term: Term) -> None:
        """Set a term that was written: ours, or the one before."""
        if self.terms is not None and term.epoch == self.epoch:
            self.terms.own = term
        elif self.terms is not None:
            self.terms.before = term
