"""The leader's writes beside decisions: the record of its term, and the removal of what history has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import structlog

from nimbus.domain.cluster import terms
from nimbus.domain.cluster.terms import TERMS_KEPT, EndCause, Term
from nimbus.domain.ids import CommandId
from nimbus.domain.writes import PutTerm
from nimbus.engine.decision import ArchiveOutcomes, ArchiveTerms, Effect
from nimbus.engine.state.leadership import TermKeeper
from nimbus.ports import Clock, LeaderStore, StaleStateError

_log = structlog.get_logger(__name__)

SEEN_EVERY_S = 5.0
"""How often the leader writes a sign of life into its term's record; up to 10 s if nothing else happens. This
is the precision with which the end of a dead leader is known."""
OUTCOMES_KEPT = timedelta(hours=1)
"""How long a client can read the outcome of its command."""
MAX_OUTCOMES = 10_000
"""Limit of kept outcomes, because an hour of many commands may not fit into ZooKeeper."""
KEYS_KEPT = timedelta(hours=24)
"""How long after a decision a repeated request with the same key gets the same answer."""
MAX_KEYS = 500
"""Limit of keys that one pass reads."""
PRUNE_AGAIN_S = 1.0
"""Pause between two passes that remove outcomes, while more are left."""
PRUNE_EVERY_S = 60.0


class TermUpkeep:
    """Writes the term's record, and removes old outcomes, keys and terms. Engine thread only."""

    def __init__(
        self, terms: TermKeeper, store: LeaderStore, start_effect: Callable[[Effect], None], clock: Clock
    ) -> None:
        self._terms, self._store, self._start_effect, self._clock = terms, store, start_effect, clock
        self._seen_due_s = clock.elapsed_s() + SEEN_EVERY_S
        self._prune_due_s = clock.elapsed_s()
        self._archiving_outcomes = False
        self._archived_outcomes: tuple[CommandId, ...] = ()
        self._archived_terms: tuple[int, ...] = ()
        """Terms to remove. They are pruned once in a term, which adds only one."""
        self._terms_pruned = False

    def outcomes_archived(self, commands: tuple[CommandId, ...]) -> None:
        """Note that history has the outcomes of these commands; none: storing them failed."""
        self._archiving_outcomes, self._archived_outcomes = False, commands
        if commands:
            self._prune_due_s = self._clock.elapsed_s()

    def terms_archived(self, epochs: tuple[int, ...]) -> None:
        """Note that history has the terms of these epochs."""
        self._archived_terms = epochs

    def tend(self) -> None:
        """Write and remove what is due. Raises as `LeaderTerm.decide`."""
        now_s = self._clock.elapsed_s()
        if now_s >= self._seen_due_s:
            self._seen_due_s = now_s + SEEN_EVERY_S
            self._tend_term()
        if now_s >= self._prune_due_s:
            self._prune_outcomes(now_s)

    def _tend_term(self) -> None:
        """Write a sign of life, and archive terms beyond the limit."""
        if (own := self._terms.own) is not None and own.end is None:
            self._put_term(terms.seen(self._terms.counted(own), self._clock.now()))
        if self._archived_terms:
            self._store.forget_terms(self._archived_terms)
            self._archived_terms = ()
        if not self._terms_pruned:
            self._terms_pruned = True
            if old := self._store.old_terms(TERMS_KEPT):
                self._start_effect(ArchiveTerms(old))

    def end(self, cause: EndCause, *, reason: str = "", by: str = "") -> None:
        """Record that this term ends now: its last write. If it raises, the successor closes the term."""
        if (own := self._terms.own) is not None and own.end is None:
            self._put_term(
                terms.ended(self._terms.counted(own), cause, self._clock.now(), reason=reason, by=by)
            )

    def _put_term(self, term: Term) -> None:
        """Write our own term, in a transaction without decisions."""
        try:
            transaction = self._store.begin()
            transaction.add((PutTerm(term),))
            transaction.commit()
        except StaleStateError as exc:  # deleted by hand: no reason to end leadership
            _log.warning("term_not_recorded", epoch=term.epoch, error=str(exc))
        else:
            self._terms.own = term

    def _prune_outcomes(self, now_s: float) -> None:
        if self._archived_outcomes:
            self._store.forget_outcomes(self._archived_outcomes)
            self._archived_outcomes = ()
        pruned = self._store.prune_outcomes(self._clock.now() - OUTCOMES_KEPT, MAX_OUTCOMES)
        if pruned.old and not self._archiving_outcomes:
            self._archiving_outcomes = True
            self._start_effect(ArchiveOutcomes(pruned.old))
        self._store.prune_keys(self._clock.now() - KEYS_KEPT, MAX_KEYS)
        more = pruned.more and not self._archiving_outcomes
        self._prune_due_s = now_s + (PRUNE_AGAIN_S if more else PRUNE_EVERY_S)
