"""One epoch of leadership: load the facts, apply the rules, write each decision. Dropped when the epoch ends.

Nothing of a reign outlives it, so a second tenure of the same process starts on a fresh look at ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

import structlog

from nimbus.domain.ids import AttemptId
from nimbus.domain.writes import PutRun
from nimbus.engine import facts as f
from nimbus.engine import news as n
from nimbus.engine.decision import Decision, Effect
from nimbus.engine.rules import next_decision, next_wakeup
from nimbus.ports import Clock, LeaderStore, SlotTakenError, StaleStateError
from nimbus.telemetry.engine import EngineMetrics

_log = structlog.get_logger(__name__)

MOST_CONFLICTS = 20
"""Decisions in a row that may find the state changed under them before something is plainly wrong."""


class Reign:
    """The leader's work within one epoch. Engine thread only."""

    def __init__(
        self,
        *,
        epoch: int,
        store: LeaderStore,
        inbox: Callable[[n.News], None],
        start_effect: Callable[[Effect], None],
        policy: f.Policy,
        clock: Clock,
        metrics: EngineMetrics,
    ) -> None:
        self._store = store
        self._start_effect = start_effect
        self._clock = clock
        self._metrics = metrics
        self.facts = f.Facts(epoch=epoch, policy=policy)
        store.subscribe(
            commands=lambda: inbox(n.CommandsChanged()),
            workers=lambda: inbox(n.WorkersChanged()),
            attempt=lambda attempt: inbox(n.AttemptChanged(attempt)),
        )

    def recover(self) -> None:
        """Read everything, and adopt what is open: it goes on without being restarted."""
        self.facts = f.from_snapshot(self._store.load(), self.facts, self._clock.now())
        for attempt_id, _, attempt in self.facts.open_attempts():
            if attempt.opened_by_epoch != self.facts.epoch:
                claim = self.facts.slots[attempt_id].claim
                _log.info(
                    "attempt_adopted",
                    attempt=str(attempt_id),
                    epoch=self.facts.epoch,
                    opened_by_epoch=attempt.opened_by_epoch,
                    claimed=claim is not None,
                )

    def decide(self) -> None:
        """Apply the rules until none answers; each decision is one fenced transaction.

        Raises:
            FencedOutError: another scheduler leads.
            StoreUnavailableError: ZooKeeper does not answer; what was written last is not known.
        """
        conflicts = 0
        while (decision := next_decision(self.facts, self._clock.now())) is not None:
            try:
                self._do(decision)
                conflicts = 0
            except (SlotTakenError, StaleStateError) as exc:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise
                _log.info("decision_overtaken", decision=decision.name, why=str(exc), **decision.about)
                self.recover()

    def _do(self, decision: Decision) -> None:
        started_s = self._clock.elapsed_s()
        if decision.writes:
            self._store.commit(decision.writes)
        before = self.facts
        self.facts = decision.facts
        self._metrics.decided(decision.name, self._clock.elapsed_s() - started_s)
        for write in decision.writes:
            if isinstance(write, PutRun):
                self._metrics.run_moved(before.runs.get(write.run.id), write.run)
        _log.info(decision.name, epoch=self.facts.epoch, **decision.about)
        for effect in decision.effects:
            self._start_effect(effect)
        self._watch_new_attempts(before)

    def _watch_new_attempts(self, before: f.Facts) -> None:
        """A new attempt's slots are watched from its first moment on: reading arms the watch."""
        for attempt in self.facts.slots.keys() - before.slots.keys():
            self._look_at(attempt)

    def _look_at(self, attempt: AttemptId) -> None:
        self.facts = f.with_slots(self.facts, attempt, self._store.read_slots(attempt), self._clock.now())

    def take(self, batch: Iterable[n.News]) -> None:
        """Take in news."""
        batch = tuple(batch)
        self.hear(batch)
        self.look(batch)

    def hear(self, batch: Iterable[n.News]) -> None:
        """Take in what was told. Reads nothing, so no outage can lose it: it is told once."""
        for news in batch:
            self._take_result(news)

    def look(self, batch: Iterable[n.News]) -> None:
        """Look at what has changed, once, however often it was said.

        Raises:
            StoreUnavailableError: it could not be read; `recover` makes up for it.
        """
        batch = tuple(batch)
        now = self._clock.now()
        if any(isinstance(news, n.CommandsChanged) for news in batch):
            self.facts = replace(self.facts, commands=self._store.read_commands())
        if any(isinstance(news, n.WorkersChanged) for news in batch):
            self.facts = f.with_workers(self.facts, self._store.read_workers(), now)
        for attempt in sorted({news.attempt for news in batch if isinstance(news, n.AttemptChanged)}):
            if attempt in self.facts.slots:
                self._look_at(attempt)

    def _take_result(self, news: n.News) -> None:
        match news:
            case n.ReleasePrepared(release, result) if release in self.facts.preparing:
                self.facts = replace(
                    self.facts,
                    preparing=self.facts.preparing - {release},
                    prepared={**self.facts.prepared, release: result},
                )
            case n.RunArchived(run):
                self.facts = replace(
                    self.facts,
                    archiving=self.facts.archiving - {run},
                    archived=self.facts.archived | {run},
                )
            case n.QuarantineChanged(quarantined):
                self.facts = replace(self.facts, quarantined=dict(quarantined))
            case _:
                return

    def wakeup(self) -> datetime | None:
        """The next moment at which a rule may answer without news."""
        return next_wakeup(self.facts, self._clock.now())
