"""Reads the state from ZooKeeper: all of it in parts, then what has changed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import assert_never

import structlog

from nimbus.domain import writes as w
from nimbus.domain.ids import AttemptId, BackfillId, PipelineName, RunId
from nimbus.domain.runs.run import Run
from nimbus.engine import events as e
from nimbus.engine.state import State
from nimbus.engine.state.leadership import TermKeeper
from nimbus.engine.work_queue import Instant
from nimbus.ports import CatalogPart, Clock, LeaderStore, LoadedPart, RegisteredPart, RunsPart

_log = structlog.get_logger(__name__)

YOUNG_S = 1.0
"""A new attempt is watched only for its END for this long. Most have ended by then, and cost the leader one
read instead of three. No decision about a claim or a heartbeat is due so early."""
COMMANDS_AT_ONCE = 1000
"""Limit of new commands that are read at once."""
MAX_TOGETHER = 32
"""Limit of decisions that are written together, and of changed attempts that are read at once. A lower one
makes turns shorter, and each decision more expensive: see docs/benchmarks.md."""

Follow = Callable[[int, Run], None]
"""Called with each run that is read or written, and with the epoch of the term."""


@contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector: repeated scans would take a quarter of a large takeover's time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class StateReader:
    """Keeps `state` as ZooKeeper has it. Engine thread only."""

    def __init__(
        self,
        *,
        state: State,
        terms: TermKeeper,
        store: LeaderStore,
        inbox: Callable[[e.Event], None],
        clock: Clock,
        follow: Follow | None,
    ) -> None:
        self.state = state
        self._schema = state.leadership.schema
        self._terms = terms
        self._store, self._inbox, self._clock, self._follow = store, inbox, clock, follow
        self._parts = store.load()
        self._young: dict[AttemptId, float] = {}
        """Attempts that are watched for their END alone, with the time of the next full look."""
        self._changed: dict[AttemptId, None] = {}
        """Attempts that have changed and are not read yet."""
        store.subscribe(
            commands=lambda: inbox(e.CommandsChanged()),
            workers=lambda: inbox(e.WorkersChanged()),
            attempt=lambda attempt: inbox(e.AttemptChanged(attempt)),
        )

    def recover(self) -> None:
        """Reset the state, so that `read_on` reads all of it again. Attempts and effects under way go on."""
        before, self.state = (
            self.state,
            State(epoch=self.state.epoch, schema=self._schema, policy=self.state.policy),
        )
        self.state.keep_from(before)
        self._terms.begin_reading()
        self._young.clear()
        self._changed.clear()
        self._parts = self._store.load()

    def read_on(self) -> None:
        """Read the next part of the state, until all parts are read.

        Raises StoreUnavailableError: it could not be read; call `recover` to begin again.
        """
        if not self.state.is_loaded:
            with _garbage_collector_paused():
                self._take_in(next(self._parts))

    def _take_in(self, part: LoadedPart) -> None:
        state, now = self.state, self._now()
        match part:
            case RegisteredPart(
                workers=workers,
                schedulers=schedulers,
                abdication=abdication,
                terms=newest,
                settings=settings,
                alerts=alerts,
                health=health,
            ):
                state.put_settings(settings, now)
                state.put_workers(workers, now)
                state.put_schedulers(schedulers, now)
                state.leadership.put_abdication(abdication)
                state.leadership.put_terms(newest)
                state.alerts.put_all(alerts, health)
                state.catalog.datasets = part.datasets
                for consumer, due in part.due.items():
                    state.catalog.put_due(consumer, due)
                for name, index in part.intervals.items():
                    state.put_intervals(name, index)
                for backfill in part.backfills:
                    state.catalog.put_backfill(backfill)
            case RunsPart(runs=runs, slots=slots):
                self._terms.count(runs, slots)
                for run in runs:
                    state.runs.put(run, now, slots)
                self._notify_followers(run for run in runs if not run.state.is_final)
            case CatalogPart(pipelines=pipelines, commands=commands):
                for record in pipelines:
                    state.put_pipeline(record)
                for queued in commands:
                    state.commands.put(queued)
                state.finish_loading()
                self._note_adopted()
            case _:
                assert_never(part)

    def _note_adopted(self) -> None:
        adopted = claimed = 0
        for attempt_id, slots in self.state.attempts.slots.items():
            opened = self.state.attempts.find(attempt_id)
            if opened is not None and opened[1].opened_by_epoch != self.state.epoch:
                adopted += 1
                claimed += slots.claim is not None
        if adopted:
            _log.info("attempts_adopted", epoch=self.state.epoch, adopted=adopted, claimed=claimed)

    def read_changes(self, batch: Iterable[e.Event]) -> None:
        """Read what has changed, once, however many events report it.

        Raises StoreUnavailableError: it could not be read; call `recover` to read everything again.
        """
        batch = tuple(batch)
        if any(isinstance(event, e.CommandsChanged) for event in batch):
            self._read_commands()
        if any(isinstance(event, e.WorkersChanged) for event in batch):
            self.state.put_workers(self._store.read_workers(), self._now())
        self._changed |= {event.attempt: None for event in batch if isinstance(event, e.AttemptChanged)}
        changed = list(islice(self._changed, MAX_TOGETHER))
        for attempt in changed:
            del self._changed[attempt]
        self._read_attempts(changed)

    def _read_commands(self) -> None:
        new = self._store.read_commands(self.state.commands.waiting.keys(), COMMANDS_AT_ONCE)
        for queued in new:
            self.state.commands.put(queued)
        if len(new) == COMMANDS_AT_ONCE:
            self._inbox(e.CommandsChanged())  # there may be more

    def _read_attempts(self, attempts: Collection[AttemptId]) -> None:
        """Read the slots of those attempts that are open, all together."""
        known = sorted(attempt for attempt in attempts if attempt in self.state.attempts.slots)
        if not known:
            return
        ended = self._store.read_ends([attempt for attempt in known if attempt in self._young])
        others = self._store.read_slots([attempt for attempt in known if attempt not in ended])
        now = self._now()
        for attempt, slots in (*ended.items(), *others.items()):
            self._young.pop(attempt, None)
            self.state.attempts.put_slots(attempt, slots, now)

    def _await_ends(self, attempts: Iterable[AttemptId]) -> None:
        opened = sorted(attempts)
        self._store.await_ends(opened)
        self._young.update(dict.fromkeys(opened, self._clock.elapsed_s() + YOUNG_S))

    def _read_grown(self, now_s: float) -> None:
        """Read all slots of attempts that are no longer young; `_young` is in the order of their times."""
        grown = list(takewhile(lambda attempt: self._young[attempt] <= now_s, self._young))
        for attempt in grown:
            del self._young[attempt]
        self._read_attempts(grown)

    def _read_again(self, write: w.Write) -> None:  # noqa: C901 - one branch for each kind of record
        """Read again the record of a refused write."""
        match write:
            case w.CreateAlert() | w.PutAlert() | w.RemoveAlert() | w.PutHealth() | w.RemoveHealth():
                self.state.alerts.put_all(self._store.read_alerts(), self._store.read_health())
            case w.CreateRun(run) | w.PutRun(run, _):
                self._read_run(run.id)
            case w.CreatePipeline(record) | w.PutPipeline(record, _) | w.RemovePipelineRecord(record):
                self._read_pipeline(record.name)
            case w.PutBackfill(backfill, _) | w.RemoveBackfill(backfill):
                self._read_backfill(backfill.id)
            case w.CreateTerm() | w.PutTerm():
                self.state.leadership.put_terms(self._store.read_terms())
            case w.PutDataset(dataset, _) | w.RemoveDatasetRecord(dataset):
                self.state.catalog.datasets.pop(dataset.name, None)
                self.state.catalog.datasets.update(self._store.read_datasets([dataset.name]))
            case w.PutDue(pipeline, _, _):
                self.state.catalog.put_due(pipeline, self._store.read_due(pipeline))
            case w.PutIntervals(pipeline, _, _):
                self.state.put_intervals(pipeline, self._store.read_intervals(pipeline))
            case w.PutCommand(queued, _):
                self.state.commands.drop(queued.id)
                self._read_commands()
            case w.ConsumeCommand(outcome):
                self.state.commands.drop(outcome.command)
                self._read_commands()
            case (
                w.PutAbdication()
                | w.PutSettings()
                | w.RaiseSchema()
                | w.RemoveRun()
                | w.CreateAttempt()
                | w.RemoveAttempt()
                | w.Assign()
                | w.Unassign()
                | w.WriteClaim()
                | w.WriteEnd()
                | w.RequestStop()
            ):
                pass  # nobody else writes these, or they are read with the run that the key names

    def _read_run(self, run_id: RunId) -> None:
        run = self._store.read_run(run_id)
        self.state.runs.forget(run_id)
        if run is not None:
            self.state.runs.put(run, self._now())
            self._read_attempts(run.open_attempts())

    def _read_pipeline(self, name: PipelineName) -> None:
        record = self._store.read_pipeline(name)
        if record is None:
            self.state.forget_pipeline(name)
        else:
            self.state.put_pipeline(record)

    def _read_backfill(self, backfill_id: BackfillId) -> None:
        backfill = self._store.read_backfill(backfill_id)
        if backfill is None:
            self.state.catalog.forget_backfill(backfill_id)
        else:
            self.state.catalog.put_backfill(backfill)

    def _notify_followers(self, runs: Iterable[Run]) -> None:
        if self._follow is not None:
            for run in runs:
                self._follow(self.state.epoch, run)

    def _now(self) -> Instant:
        return Instant(self._clock.now(), self._clock.elapsed_s())
