"""One epoch of leadership: load the facts, apply the rules, write each decision. Dropped when the epoch ends.

Nothing of a reign outlives it, so a second tenure of the same process starts on a fresh look at ZooKeeper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from leader import LeaderError
from nimbus.domain.errors import NimbusError, RecordTooLargeError
from nimbus.domain.ids import AttemptId
from nimbus.domain.writes import PutRun
from nimbus.engine import facts as f
from nimbus.engine import news as n
from nimbus.engine.decision import Decision, Effect
from nimbus.engine.facts import Subject
from nimbus.engine.rules import next_decision, next_wakeup
from nimbus.engine.rules.commands import refuse_command
from nimbus.engine.rules.isolation import culprit, subject_of
from nimbus.ports import (
    Clock,
    FencedOutError,
    LeaderStore,
    SlotTakenError,
    StaleStateError,
    StoreUnavailableError,
)
from nimbus.telemetry.engine import EngineMetrics

_log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")

MOST_CONFLICTS = 5
"""How often in a row a decision about one subject may find the state changed under it."""
MOST_UNEXPLAINED = 100
"""Writes that fail for no known reason, within TIDY_EVERY_S, before the reign ends: the fault may be ours."""
WORKERS_EVERY_S = 5.0
"""The workers' registrations are read again: a watch tells of who comes and goes, not of load or draining."""
TIDY_EVERY_S = 60.0
OUTCOMES_KEPT = timedelta(hours=1)
"""How long whoever asked can learn what became of a command."""
MOST_AT_ONCE = 100
"""Decisions between two looks at the inbox."""


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
        self._workers_due_s = self._tidy_due_s = clock.elapsed_s()
        self._unexplained = 0
        self._conflicts: Counter[Subject | None] = Counter()
        store.subscribe(
            commands=lambda: inbox(n.CommandsChanged()),
            workers=lambda: inbox(n.WorkersChanged()),
            attempt=lambda attempt: inbox(n.AttemptChanged(attempt)),
        )

    def recover(self) -> None:
        """Read everything, and adopt what is open: it goes on without being restarted."""
        self.facts = f.from_snapshot(self._store.load(), self.facts, self._clock.elapsed_s())
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

    def decide(self) -> bool:
        """Apply the rules until none answers, or for a while; each decision is one fenced transaction.

        Returns:
            Whether there may be more to decide: first hear the news, so that no flood keeps them waiting.

        Raises:
            FencedOutError: another scheduler leads.
            StoreUnavailableError: ZooKeeper does not answer; what was written last is not known.
        """
        for _ in range(MOST_AT_ONCE):
            decision = self._asked(next_decision)
            if decision is None:
                return False
            self._try(decision)
        return True

    def _asked(self, question: Callable[[f.Facts, datetime], Answer]) -> Answer:
        """What the rules say; over what one of them fails is set aside, and they are asked again."""
        now = self._clock.now()
        self.facts = replace(self.facts, elapsed_s=self._clock.elapsed_s())
        while True:
            try:
                return question(self.facts, now)
            except Exception as exc:
                subject = culprit(self.facts, now, question)
                if subject is None:
                    raise
                self._set_aside(subject, exc)

    def _try(self, decision: Decision) -> None:
        """Do a decision; if that cannot be, see to it that it does not come back at once, for ever."""
        subject = subject_of(decision)
        try:
            self._do(decision)
        except (FencedOutError, StoreUnavailableError, LeaderError):
            raise
        except (SlotTakenError, StaleStateError) as exc:
            self._overtaken(decision, subject, exc)
        except Exception as exc:
            # A record that cannot be written; see `rules.isolation`. One bad pipeline harms only itself.
            if subject is None:
                raise
            self._give_up(subject, exc)
        else:
            self._conflicts.pop(subject, None)

    def _overtaken(self, decision: Decision, subject: Subject | None, exc: NimbusError) -> None:
        """The state changed under a decision: look again. If it goes on so, it is not the state."""
        _log.info("decision_overtaken", decision=decision.name, why=str(exc), **decision.about)
        self._conflicts[subject] += 1
        self.recover()
        if self._conflicts[subject] > MOST_CONFLICTS:
            if subject is None:
                raise exc
            del self._conflicts[subject]
            self._give_up(subject, exc)

    def _give_up(self, subject: Subject, exc: Exception) -> None:
        """Refuse a command that cannot be acted on; set anything else aside."""
        if not isinstance(exc, NimbusError):
            self._unexplained += 1
            if self._unexplained > MOST_UNEXPLAINED:
                raise exc
        queued = next((q for q in self.facts.commands if Subject("command", q.id) == subject), None)
        if queued is None:
            self._set_aside(subject, exc)
            return
        code = exc.code if isinstance(exc, RecordTooLargeError) else "conflict"
        try:
            self._do(refuse_command(self.facts, queued, code, str(exc), self._clock.now()))
        except (SlotTakenError, StaleStateError) as again:
            self._set_aside(subject, again)

    def _set_aside(self, subject: Subject, exc: Exception) -> None:
        """Let no rule look at it for a while, so that all else goes on.

        Their number ends no reign: a successor applies the same rules to the same records.
        """
        why = f"{type(exc).__name__}: {exc}"
        _log.error("subject_set_aside", kind=subject.kind, id=subject.id, why=why, exc_info=exc)
        self.facts = replace(self.facts, set_aside={**self.facts.set_aside, subject: why})

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
        slots = self._store.read_slots(attempt)
        self.facts = f.with_slots(self.facts, attempt, slots, self._clock.elapsed_s())

    def _look_at_workers(self) -> None:
        self.facts = f.with_workers(self.facts, self._store.read_workers(), self._clock.elapsed_s())

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
        if any(isinstance(news, n.CommandsChanged) for news in batch):
            self.facts = replace(self.facts, commands=self._store.read_commands())
        if any(isinstance(news, n.WorkersChanged) for news in batch):
            self._look_at_workers()
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
            case n.RunArchived(run) if run in self.facts.archiving:  # not one that an earlier reign asked for
                self.facts = replace(
                    self.facts,
                    archiving=self.facts.archiving - {run},
                    archived=self.facts.archived | {run},
                )
            case n.QuarantineChanged(quarantined):
                self.facts = replace(self.facts, quarantined=dict(quarantined))
            case _:
                return

    def tend(self) -> None:
        """See to what no news tells of: the workers' own data, old outcomes, and what was set aside.

        Raises:
            FencedOutError: another scheduler leads.
            StoreUnavailableError: ZooKeeper does not answer.
        """
        now_s = self._clock.elapsed_s()
        if now_s >= self._workers_due_s:
            self._workers_due_s = now_s + WORKERS_EVERY_S
            self._look_at_workers()
        if now_s >= self._tidy_due_s:
            self._tidy_due_s = now_s + TIDY_EVERY_S
            self._unexplained = 0
            self._store.prune_outcomes(self._clock.now() - OUTCOMES_KEPT)
            if self.facts.set_aside:
                self.facts = replace(self.facts, set_aside={})
                self.recover()  # what was set aside was not followed meanwhile

    def wakeup(self) -> datetime | None:
        """The next moment at which a rule may answer without news."""
        return self._asked(next_wakeup)
