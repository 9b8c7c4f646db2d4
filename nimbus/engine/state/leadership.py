"""What the leader knows of its term, of the other schedulers, and of the cluster's schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.schema import older_than
from nimbus.domain.cluster.terms import Adopted, Leader, Term
from nimbus.domain.commands import Abdication
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.run import Run
from nimbus.engine.work_queue import Instant, Key, WorkQueue


class LeadershipState:
    """This term and its end, and the schedulers of the cluster."""

    def __init__(self, work: WorkQueue, *, epoch: int, schema: int, newest_schema: int) -> None:
        self._work = work
        self._epoch = epoch
        self.schema = schema
        """The cluster's schema: it decides the form of records and the layout of new runs."""
        self._newest_schema = newest_schema
        self.none_older_since: float | None = None
        """Since when all registered processes know a newer schema, in elapsed seconds; None: not all do."""
        self.schedulers: tuple[SchedulerInfo, ...] = ()
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
            self._work.add(Key("term"))

    def put_term(self, term: Term) -> None:
        """Set a term that was written: ours, or the one before."""
        if self.terms is not None and term.epoch == self._epoch:
            self.terms.own = term
        elif self.terms is not None:
            self.terms.before = term

    def put_abdication(self, abdication: Abdication | None) -> None:
        """Set the last accepted abdication, as read."""
        self.abdication = abdication
        self._work.add(Key("abdication"))

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
        self._work.add(Key("schema"))

    def schema_raised(self, schema: int) -> None:
        """Set the schema that was written."""
        self.schema, self.none_older_since = schema, None

    def keep_from(self, before: LeadershipState) -> None:
        """Copy what ZooKeeper does not have."""
        self.terms = before.terms
        self.resigning = before.resigning
        self.none_older_since = before.none_older_since


class TermKeeper:
    """The records of both terms, and counts for them. It lives as long as the term."""

    def __init__(self, leader: Leader, elected_s: float) -> None:
        self.leader = leader
        self.elected_s = elected_s
        """When leadership was confirmed, in elapsed seconds."""
        self.own: Term | None = None
        self.before: Term | None = None
        """The newest term of another epoch."""
        self.found = Adopted()
        """Counts of the open work found so far, while the state is read."""
        self.decisions = 0
        self.fenced: set[AttemptId] = set()

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
        adopted = self.found
        ended = sum(pair.end is not None for pair in slots.values())
        claimed = sum(pair.end is None and pair.claim is not None for pair in slots.values())
        self.found = replace(
            adopted,
            runs=adopted.runs + sum(not run.state.is_final for run in runs),
            ended=adopted.ended + ended,
            claimed=adopted.claimed + claimed,
            unclaimed=adopted.unclaimed + len(slots) - ended - claimed,
        )

    def counted(self, term: Term) -> Term:
        """The term, with the current counts of decisions and fenced attempts."""
        term = replace(term, decisions=self.decisions)
        if term.adopted is None or term.adopted.fenced == len(self.fenced):
            return term
        return replace(term, adopted=replace(term.adopted, fenced=len(self.fenced)))
