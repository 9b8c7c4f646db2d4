"""Updates what the leader knows of its term, of the other schedulers, and of the cluster's schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nimbus.domain.commands import Abdication
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.schema import older_than
from nimbus.domain.terms import Term
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.agenda import ABOUT_ABDICATION, ABOUT_SCHEMA, ABOUT_TERM, Agenda, Instant
from nimbus.engine.term_keeper import TermKeeper


class Leadership:
    """This term and its end, and the schedulers of the cluster."""

    def __init__(self, agenda: Agenda, *, epoch: int, schema: int, newest_schema: int) -> None:
        self._agenda = agenda
        self._epoch = epoch
        self.schema = schema
        """The cluster's schema: it decides the form of records and the layout of new runs."""
        self._newest_schema = newest_schema
        self.none_older_since: float | None = None
        """Since when all registered processes know a newer schema, in elapsed seconds; None: not all do."""
        self.schedulers: tuple[SchedulerInfo, ...] = ()
        """Registered schedulers."""
        self.terms: TermKeeper | None = None
        """None: this term is not recorded."""
        self.abdication: Abdication | None = None
        """The last accepted abdication, of any epoch."""
        self.resigning = False
        """True while this leader resigns because of an abdication."""

    def put_terms(self, newest: Iterable[Term]) -> None:
        """Set the newest terms, as read."""
        if self.terms is not None:
            self.terms.put(self._epoch, newest)
            self._agenda.add(ABOUT_TERM)

    def put_term(self, term: Term) -> None:
        """Set a term that was written: ours, or the one before."""
        if self.terms is not None and term.epoch == self._epoch:
            self.terms.own = term
        elif self.terms is not None:
            self.terms.before = term

    def put_abdication(self, abdication: Abdication | None) -> None:
        """Set the last accepted abdication, as read."""
        self.abdication = abdication
        self._agenda.add(ABOUT_ABDICATION)

    def abdicated(self, abdication: Abdication) -> None:
        """Set an abdication that was written."""
        if self.abdication is not None and self.abdication.to:
            self.resigning = False  # the named successor has left the queue, so we lead on
        self.put_abdication(abdication)

    def put_schedulers(
        self, schedulers: Collection[SchedulerInfo], workers: Collection[WorkerInfo], now: Instant
    ) -> None:
        """Update schedulers, and note since when they and all workers know a newer schema."""
        self.schedulers = tuple(schedulers)
        upgraded = schedulers and not older_than(self._newest_schema, schedulers, workers)
        if self.schema >= self._newest_schema or not upgraded:
            self.none_older_since = None
            return
        if self.none_older_since is None:
            self.none_older_since = now.elapsed_s
        self._agenda.add(ABOUT_SCHEMA)

    def schema_raised(self, schema: int) -> None:
        """Set the schema that was written."""
        self.schema, self.none_older_since = schema, None

    def keep_from(self, before: Leadership) -> None:
        """Copy what ZooKeeper does not have."""
        self.terms = before.terms
        self.resigning = before.resigning
        self.none_older_since = before.none_older_since
