"""Ports kept in memory: for unit tests and demos, without ZooKeeper or S3. Safe for many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from nimbus.adapters.memory_changes import MemoryChangeLog, MemoryChanges
from nimbus.domain import topics
from nimbus.domain.access import Principal
from nimbus.domain.alerts import Alert
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import Command, CommandKey, CommandOutcome, QueuedCommand, newest_refusal
from nimbus.domain.idempotency import KeyedCommand, KeyUsedError
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.purge import Purged, PurgeOrder, reused_runs
from nimbus.domain.results import Results
from nimbus.domain.run import ListedRun, Run
from nimbus.domain.run_order import RunPlace, place
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Slots
from nimbus.domain.terms import Term
from nimbus.domain.workers import WorkerInfo
from nimbus.ports import Enqueue, Kept, RecentRuns, StoreUnavailableError

Decide = Callable[[QueuedCommand], CommandOutcome | None]
"""Acts as the leader: returns the outcome, or None if the command must wait."""


class MemoryCluster:
    """See `nimbus.ports.ClusterReader` and `nimbus.ports.CommandQueue`: one store, both views.

    Args:
        decide: Answers each command as it is submitted; without it, commands wait for `answer`.
    """

    def __init__(self, decide: Decide | None = None) -> None:
        self._decide = decide
        self._lock = threading.Lock()
        self._pipelines: dict[PipelineName, PipelineRecord] = {}
        self._runs: dict[RunId, Run] = {}
        self._slots: dict[AttemptId, Slots] = {}
        self._schedulers: dict[str, SchedulerInfo] = {}
        self._workers: dict[WorkerId, WorkerInfo] = {}
        self._waiting: dict[CommandId, QueuedCommand] = {}
        self._outcomes: dict[CommandId, CommandOutcome] = {}
        self._watches: dict[CommandId, list[Enqueue]] = {}
        self._settings = ClusterSettings()
        self._backfills: dict[BackfillId, Backfill] = {}
        self._alerts: dict[str, Alert] = {}
        self._terms: dict[int, Term] = {}
        self._intervals: dict[PipelineName, IntervalIndex] = {}
        self._keys: dict[str, KeyedCommand] = {}
        self._count = 0
        self._down = False
        self._log = MemoryChangeLog()

    def changes(self) -> MemoryChanges:
        """A feed of this cluster's changes."""
        return MemoryChanges(self._log, self._check)

    def put(
        self,
        *records: PipelineRecord
        | Run
        | Backfill
        | SchedulerInfo
        | WorkerInfo
        | ClusterSettings
        | Alert
        | Term,
    ) -> None:
        """Add or replace records."""
        with self._lock:
            for record in records:
                self._put(record)

    def _put(
        self,
        record: PipelineRecord | Run | Backfill | SchedulerInfo | WorkerInfo | ClusterSettings | Alert | Term,
    ) -> None:
        note = self._log.note
        match record:
            case PipelineRecord():
                self._pipelines[record.name] = record
                note(topics.PIPELINES, topics.of_pipeline(record.name))
            case Run():
                self._runs[record.id] = record
                note(topics.RUNS, topics.of_run(record.id))
            case Backfill():
                self._backfills[record.id] = record
                note(topics.PIPELINES)
            case SchedulerInfo():
                note(topics.CLUSTER, topics.ELECTION, is_beat=record.id in self._schedulers)
                self._schedulers[record.id] = record
            case WorkerInfo():
                note(topics.WORKERS, is_beat=record.id in self._workers)
                self._workers[record.id] = record
            case ClusterSettings():
                self._settings = record
                note(topics.CLUSTER, topics.WORKERS)
            case Alert():
                self._alerts[record.id] = record
                note(topics.CLUSTER)
            case Term():
                note(topics.ELECTION, is_beat=record.epoch in self._terms)
                self._terms[record.epoch] = record

    def put_intervals(self, name: PipelineName, index: IntervalIndex) -> None:
        """Set the index of a pipeline's data intervals."""
        with self._lock:
            self._intervals[name] = index

    def put_slots(self, attempt: AttemptId, slots: Slots) -> None:
        """Set the slots of an attempt."""
        with self._lock:
            self._slots[attempt] = slots
            self._log.note(topics.of_run(attempt.run))

    def drop_run(self, run: RunId) -> None:
        """Remove a run, as when it has moved to history."""
        with self._lock:
            self._runs.pop(run, None)
            self._log.note(topics.RUNS, topics.of_run(run))

    def set_down(self, down: bool) -> None:
        """Simulate a ZooKeeper outage: every call raises StoreUnavailableError."""
        with self._lock:
            self._down = down

    def answer(self, outcome: CommandOutcome) -> None:
        """Act as the leader: decide a waiting command."""
        with self._lock:
            queued = self._waiting.pop(outcome.command, None)
            if queued is not None and queued.key is not None:
                known = KeyedCommand(request=queued.key.request, outcome=outcome)
                self._keys[queued.key.hash] = known
            self._outcomes[outcome.command] = outcome
            watches = self._watches.pop(outcome.command, [])
            self._log.note(topics.COMMANDS)
        for changed in watches:
            changed()

    def submit(
        self,
        command: Command,
        *,
        submitted_by: str,
        asked_by: Principal | None = None,
        key: CommandKey | None = None,
        if_match: tuple[str, ...] = (),
    ) -> CommandId:
        """See `nimbus.ports.CommandQueue.submit`."""
        with self._lock:
            self._check()
            if key is not None:
                if key.hash in self._keys:
                    raise KeyUsedError(key)
                self._keys[key.hash] = KeyedCommand(request=key.request)
            queued = QueuedCommand(
                id=CommandId(f"cmd-{self._count:010d}"),
                command=command,
                submitted_at=datetime.now(UTC),
                submitted_by=submitted_by,
                asked_by=asked_by,
                key=key,
                if_match=if_match,
            )
            self._count += 1
            self._waiting[queued.id] = queued
            self._log.note(topics.COMMANDS)
        outcome = self._decide(queued) if self._decide else None
        if outcome is not None:
            self.answer(outcome)
        return queued.id

    def keyed(self, key_hash: str) -> KeyedCommand | None:
        """See `nimbus.ports.CommandQueue.keyed`."""
        with self._lock:
            self._check()
            return self._keys.get(key_hash)

    def outcome(self, command: CommandId, changed: Enqueue | None = None) -> CommandOutcome | None:
        """See `nimbus.ports.CommandQueue.outcome`."""
        with self._lock:
            self._check()
            if changed is not None and command not in self._outcomes:
                self._watches.setdefault(command, []).append(changed)
            return self._outcomes.get(command)

    def outcomes(self) -> tuple[CommandOutcome, ...]:
        """See `nimbus.ports.CommandQueue.outcomes`."""
        with self._lock:
            self._check()
            return tuple(self._outcomes.values())

    def refused_start(self, run: RunId) -> CommandOutcome | None:
        """See `nimbus.ports.CommandQueue.refused_start`."""
        with self._lock:
            self._check()
            return newest_refusal(run, self._outcomes.values())

    def settings(self) -> ClusterSettings:
        """See `nimbus.ports.ClusterReader.settings`."""
        with self._lock:
            self._check()
            return self._settings

    def terms(self, most: int) -> tuple[Term, ...]:
        """See `nimbus.ports.ClusterReader.terms`."""
        with self._lock:
            self._check()
            return tuple(self._terms[epoch] for epoch in sorted(self._terms, reverse=True)[:most])

    def alerts(self) -> tuple[Alert, ...]:
        """See `nimbus.ports.ClusterReader.alerts`."""
        with self._lock:
            self._check()
            return tuple(sorted(self._alerts.values(), key=lambda alert: (alert.raised_at, alert.id)))

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """See `nimbus.ports.ClusterReader.pipelines`."""
        with self._lock:
            self._check()
            return tuple(self._pipelines[name] for name in sorted(self._pipelines))

    def pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """See `nimbus.ports.ClusterReader.pipeline`."""
        with self._lock:
            self._check()
            return self._pipelines.get(name)

    def backfills(self) -> tuple[Backfill, ...]:
        """See `nimbus.ports.ClusterReader.backfills`."""
        with self._lock:
            self._check()
            return tuple(self._backfills[key] for key in sorted(self._backfills))

    def backfill(self, backfill: BackfillId) -> Backfill | None:
        """See `nimbus.ports.ClusterReader.backfill`."""
        with self._lock:
            self._check()
            return self._backfills.get(backfill)

    def intervals(self, name: PipelineName) -> IntervalIndex | None:
        """See `nimbus.ports.ClusterReader.intervals`."""
        with self._lock:
            self._check()
            return self._intervals.get(name)

    def run_list(self) -> Mapping[str, ListedRun]:
        """See `nimbus.ports.ClusterReader.run_list`."""
        with self._lock:
            self._check()
            return {name: run.listed() for name, run in self._runs.items()}

    def runs(self, wanted: Iterable[RunId]) -> Mapping[RunId, Run]:
        """See `nimbus.ports.ClusterReader.runs`."""
        with self._lock:
            self._check()
            return {run: self._runs[run] for run in wanted if run in self._runs}

    def run(self, run: RunId) -> Run | None:
        """See `nimbus.ports.ClusterReader.run`."""
        with self._lock:
            self._check()
            return self._runs.get(run)

    def slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        """See `nimbus.ports.ClusterReader.slots`."""
        with self._lock:
            self._check()
            return {attempt: self._slots.get(attempt, Slots()) for attempt in attempts}

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        """See `nimbus.ports.ClusterReader.schedulers`."""
        with self._lock:
            self._check()
            return tuple(self._schedulers[name] for name in sorted(self._schedulers))

    def workers(self) -> tuple[WorkerInfo, ...]:
        """See `nimbus.ports.ClusterReader.workers`."""
        with self._lock:
            self._check()
            return tuple(self._workers[name] for name in sorted(self._workers))

    def orders(self, workers: Iterable[WorkerId]) -> Mapping[WorkerId, Sequence[str]]:
        """See `nimbus.ports.ClusterReader.orders`."""
        with self._lock:
            self._check()
            ordered: dict[WorkerId, list[str]] = {worker: [] for worker in workers}
            for run in self._runs.values():
                for task in run.tasks.values():
                    attempt = task.open_attempt
                    if attempt is not None and (by := attempt.reaper or attempt.worker) in ordered:
                        ordered[by].append(str(AttemptId(run.id, task.spec.name, attempt.number)))
            return {worker: tuple(sorted(names)) for worker, names in ordered.items()}

    def commands(self) -> tuple[QueuedCommand, ...]:
        """See `nimbus.ports.ClusterReader.commands`."""
        with self._lock:
            self._check()
            return tuple(self._waiting.values())

    def all_commands(self) -> tuple[QueuedCommand, ...]:
        """See `nimbus.scheduler.live_releases.WholeState`."""
        return self.commands()

    def all_pipelines(self) -> tuple[PipelineRecord, ...]:
        """See `nimbus.scheduler.live_releases.WholeState`."""
        return self.pipelines()

    def all_runs(self) -> tuple[Run, ...]:
        """See `nimbus.scheduler.live_releases.WholeState`."""
        return tuple(self.runs(run.id for run in self.run_list().values()).values())

    def _check(self) -> None:
        if self._down:
            raise StoreUnavailableError("ZooKeeper does not answer; try again when it does.")


class MemoryHistory:
    """See `nimbus.ports.History`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[RunId, Run] = {}
        self._results: dict[RunId, Results] = {}
        self._outcomes_kept: dict[CommandId, CommandOutcome] = {}
        self._terms: dict[int, Term] = {}
        self.notes: dict[RunId, Purged] = {}
        """Purged parts of runs."""
        self.orders: dict[CommandId, PurgeOrder] = {}
        self._down = False

    def set_down(self, down: bool) -> None:
        """Simulate a storage outage."""
        self._down = down

    def store(self, run: Run) -> None:
        """See `nimbus.ports.History.store`."""
        with self._lock:
            self._check()
            self._runs[run.id] = run

    def store_results(self, run: RunId, results: Results) -> None:
        """See `nimbus.ports.History.store_results`."""
        with self._lock:
            self._check()
            self._results[run] = results

    def results(self, run: RunId) -> Results:
        """See `nimbus.ports.History.results`."""
        with self._lock:
            self._check()
            return self._results.get(run, {})

    def read(self, run: RunId) -> Run | None:
        """See `nimbus.ports.History.read`."""
        with self._lock:
            self._check()
            return self._runs.get(run)

    def recent(self, pipeline: PipelineName | None, limit: int, after: RunPlace | None = None) -> RecentRuns:
        """See `nimbus.ports.History.recent`."""
        with self._lock:
            self._check()
            runs = [run for run in self._runs.values() if pipeline in (None, run.pipeline)]
            found = sorted((run for run in runs if after is None or place(run) > after), key=place)
            more = 0 < limit < len(found)
            return RecentRuns(tuple(found[:limit]), place(found[limit - 1]) if more else None)

    def store_terms(self, terms: Sequence[Term]) -> None:
        """See `nimbus.ports.History.store_terms`."""
        with self._lock:
            self._check()
            self._terms |= {term.epoch: term for term in terms}

    def terms(self, before: int, limit: int) -> tuple[Term, ...]:
        """See `nimbus.ports.History.terms`."""
        with self._lock:
            self._check()
            found = sorted((epoch for epoch in self._terms if epoch < before), reverse=True)
            return tuple(self._terms[epoch] for epoch in found[:limit])

    def store_outcomes(self, outcomes: Sequence[CommandOutcome]) -> None:
        """See `nimbus.ports.History.store_outcomes`."""
        with self._lock:
            self._check()
            self._outcomes_kept |= {one.command: one for one in outcomes}

    def outcomes(
        self, pipeline: PipelineName | None, limit: int, *, refused: bool = False
    ) -> tuple[CommandOutcome, ...]:
        """See `nimbus.ports.History.outcomes`."""
        with self._lock:
            self._check()
            kept = (one for one in self._outcomes_kept.values() if not (refused and one.accepted))
            found = [one for one in kept if pipeline in (None, one.pipeline)]
            return tuple(sorted(found, key=lambda one: (one.decided_at, one.command), reverse=True)[:limit])

    def created_before(self, when: datetime, pipeline: PipelineName | None) -> Iterator[RunId]:
        """See `nimbus.ports.History.created_before`."""
        with self._lock:
            self._check()
            fitting = [run for run in self._runs.values() if pipeline in (None, run.pipeline)]
        yield from (run.id for run in sorted(fitting, key=place) if run.created_at < when)

    def reusers(self, run: RunId) -> tuple[RunId, ...]:
        """See `nimbus.ports.History.reusers`."""
        with self._lock:
            self._check()
            return tuple(sorted(other.id for other in self._runs.values() if run in reused_runs(other)))

    def purged(self, run: RunId) -> Purged | None:
        """See `nimbus.ports.History.purged`."""
        with self._lock:
            self._check()
            return self.notes.get(run)

    def order_purge(self, command: CommandId, order: PurgeOrder) -> None:
        """See `nimbus.ports.History.order_purge`."""
        with self._lock:
            self._check()
            self.orders[command] = order

    def _check(self) -> None:
        if self._down:
            raise StoreUnavailableError("storage does not answer; finished runs cannot be read now.")


class MemoryLogs:
    """See `nimbus.ports.LogArchive`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[tuple[AttemptId, Kept], bytearray] = {}

    def append(self, attempt: AttemptId, offset: int, data: bytes, kept: Kept = Kept.LOG) -> None:
        """See `nimbus.ports.LogArchive.append`. A gap is refused: readers would take it for text."""
        with self._lock:
            log = self._logs.setdefault((attempt, kept), bytearray())
            if offset > len(log):
                raise ValueError(
                    f"log of {attempt} has {len(log)} bytes: bytes at {offset} would leave a gap"
                )
            log[offset : offset + len(data)] = data

    def append_all(self, logs: Mapping[AttemptId, bytes]) -> None:
        """See `nimbus.ports.LogArchive.append_all`."""
        for attempt, data in logs.items():
            self.append(attempt, 0, data)

    def read(self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20, kept: Kept = Kept.LOG) -> bytes:
        """See `nimbus.ports.LogArchive.read`."""
        with self._lock:
            return bytes(self._logs.get((attempt, kept), b"")[offset : offset + limit])

    def size(self, attempt: AttemptId) -> int:
        """See `nimbus.ports.LogArchive.size`."""
        with self._lock:
            return len(self._logs.get((attempt, Kept.LOG), b""))
