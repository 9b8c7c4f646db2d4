"""The leader's store in memory: for tests of the engine and of rules without ZooKeeper.

Passes the same contract suite as the real one (tests/nimbus/contract/test_leader_store.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from nimbus.domain import writes as w
from nimbus.domain.alerts import Alert
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import Abdication, CommandOutcome, QueuedCommand
from nimbus.domain.idempotency import KeyedCommand
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.domain.run import Run
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Slots
from nimbus.domain.terms import Term
from nimbus.domain.workers import Assignment, WorkerInfo
from nimbus.ports import (
    CatalogPart,
    Enqueue,
    FencedOutError,
    LoadedPart,
    Pruned,
    RegisteredPart,
    RunsPart,
    SlotTakenError,
    StaleStateError,
    StoreUnavailableError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The whole state of the store. It is replaced as a whole, so a refused commit changes nothing."""

    epoch: int = 1
    schema: int = 1
    pipelines: dict[PipelineName, PipelineRecord] = field(default_factory=dict)
    intervals: dict[PipelineName, IntervalIndex] = field(default_factory=dict)
    backfills: dict[BackfillId, Backfill] = field(default_factory=dict)
    runs: dict[RunId, Run] = field(default_factory=dict)
    commands: dict[CommandId, QueuedCommand] = field(default_factory=dict)
    outcomes: dict[CommandId, CommandOutcome] = field(default_factory=dict)
    keys: dict[str, KeyedCommand] = field(default_factory=dict)
    abdication: Abdication | None = None
    terms: dict[int, Term] = field(default_factory=dict)
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    workers: dict[WorkerId, WorkerInfo] = field(default_factory=dict)
    schedulers: tuple[SchedulerInfo, ...] = ()
    slots: dict[AttemptId, Slots] = field(default_factory=dict)
    orders: dict[tuple[WorkerId, AttemptId], Assignment] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    health: dict[PipelineName, PipelineHealth] = field(default_factory=dict)


class MemoryCluster:
    """The shared state of several stores; tests change `world` in the role of workers, runners, operators."""

    def __init__(self) -> None:
        self.world = World()
        self.available = True
        self.lock = threading.RLock()
        self.commits: list[tuple[w.Write, ...]] = []
        self.watchers: list[MemoryLeaderStore] = []

    def change(self, **fields: object) -> None:
        """Replace parts of the state and fire the watches."""
        with self.lock:
            self.world = replace(self.world, **fields)  # type: ignore[arg-type]  # a test's own words
        for store in self.watchers:
            store.wake()

    def set_slots(self, attempt: AttemptId, slots: Slots) -> None:
        """Act as a runner or a worker."""
        self.change(slots={**self.world.slots, attempt: slots})


class MemoryTransaction:
    """See `nimbus.ports.LeaderTransaction`. It has no size limit."""

    def __init__(self, commit: Callable[[Sequence[w.Write]], None]) -> None:
        self._commit = commit
        self._writes: list[w.Write] = []

    def add(self, writes: Sequence[w.Write]) -> bool:
        """Add writes."""
        self._writes += writes
        return True

    def commit(self) -> None:
        """Execute all writes."""
        if self._writes:
            self._commit(tuple(self._writes))


class MemoryLeaderStore:
    """See `nimbus.ports.LeaderStore`."""

    def __init__(self, cluster: MemoryCluster, epoch: int, runs_at_once: int = 250) -> None:
        self._cluster = cluster
        self._epoch, self._schema = epoch, cluster.world.schema
        self._runs_at_once = runs_at_once
        self._on_commands: Enqueue | None = None
        self._on_workers: Enqueue | None = None
        self._on_attempt: Callable[[AttemptId], None] | None = None
        cluster.watchers.append(self)

    def subscribe(self, *, commands: Enqueue, workers: Enqueue, attempt: Callable[[AttemptId], None]) -> None:
        """Set the callbacks for changes."""
        self._on_commands, self._on_workers, self._on_attempt = commands, workers, attempt

    def wake(self) -> None:
        """Something changed: call all callbacks."""
        if self._on_commands is not None and self._on_workers is not None and self._on_attempt is not None:
            self._on_commands()
            self._on_workers()
            for attempt in self._cluster.world.slots:
                self._on_attempt(attempt)

    def load(self) -> Iterator[LoadedPart]:
        """Read everything, in parts."""
        yield RegisteredPart(
            workers=self.read_workers(),
            schedulers=self.read_schedulers(),
            abdication=self._world().abdication,
            terms=self.read_terms(),
            settings=self._world().settings,
            intervals=dict(self._world().intervals),
            backfills=tuple(self._world().backfills.values()),
            alerts=self.read_alerts(),
            health=self.read_health(),
        )
        names = tuple(self._world().runs)
        for start in range(0, len(names), self._runs_at_once):
            some = names[start : start + self._runs_at_once]
            runs = tuple(run for name in some if (run := self.read_run(name)) is not None)
            slots = self.read_slots([attempt for run in runs for attempt in run.open_attempts()])
            yield RunsPart(runs=runs, slots=slots)
        yield CatalogPart(
            pipelines=tuple(self._world().pipelines.values()),
            commands=self.read_commands((), len(self._world().commands)),
        )

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        """Waiting commands that are not `known`, oldest first."""
        commands = self._world().commands
        return tuple(commands[key] for key in sorted(commands.keys() - set(known))[:most])

    def read_terms(self) -> tuple[Term, ...]:
        """The newest terms."""
        terms = self._world().terms
        return tuple(terms[epoch] for epoch in sorted(terms, reverse=True)[:2])

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        return tuple(self._world().workers.values())

    def read_schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""
        return self._world().schedulers

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """Slots of some attempts; empty if an attempt does not exist."""
        slots = self._world().slots
        return {attempt: slots.get(attempt, Slots()) for attempt in attempts}

    def await_ends(self, attempts: Sequence[AttemptId]) -> Collection[AttemptId]:
        """The attempts that have ended; `wake` reports the others later."""
        return self.read_ends(attempts).keys()

    def read_ends(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """CLAIM and END of the ended attempts."""
        slots = self._world().slots
        found = {attempt: slots[attempt] for attempt in attempts if attempt in slots}
        return {key: Slots(claim=got.claim, end=got.end) for key, got in found.items() if got.end is not None}

    def read_run(self, run: RunId) -> Run | None:
        """One run."""
        return self._world().runs.get(run)

    def read_pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline."""
        return self._world().pipelines.get(name)

    def read_backfill(self, backfill: BackfillId) -> Backfill | None:
        """One backfill."""
        return self._world().backfills.get(backfill)

    def read_alerts(self) -> tuple[Alert, ...]:
        """Alerts."""
        return tuple(sorted(self._world().alerts.values(), key=lambda alert: (alert.raised_at, alert.id)))

    def read_intervals(self, name: PipelineName) -> IntervalIndex | None:
        """One index."""
        return self._world().intervals.get(name)

    def read_health(self) -> tuple[PipelineHealth, ...]:
        """The health records of pipelines."""
        return tuple(self._world().health.values())

    def begin(self) -> MemoryTransaction:
        """Begin to collect writes."""
        return MemoryTransaction(self._commit)

    def _commit(self, writes: Sequence[w.Write]) -> None:
        with self._cluster.lock:
            world = self._world()
            self._check_epoch(world)
            for write in writes:
                world = _applied(world, write)
            self._cluster.world = world
            self._cluster.commits.append(tuple(writes))

    def prune_outcomes(self, before: datetime, most: int) -> Pruned:
        """Forget old outcomes."""
        with self._cluster.lock:
            world = self._world()
            self._check_epoch(world)
            names = sorted(world.outcomes)
            old = [
                outcome
                for place, outcome in enumerate(world.outcomes[name] for name in names)
                if outcome.decided_at < before or place < len(names) - most
            ]
            lost = names[: max(0, len(names) - 2 * most)]
            self._forget(world, lost)
            return Pruned(tuple(o for o in old if o.command not in lost), more=False)

    def prune_keys(self, before: datetime, most: int) -> None:
        """Forget old keys."""
        with self._cluster.lock:
            world = self._world()
            self._check_epoch(world)
            old = [key for key, known in world.keys.items() if known.may_be_forgotten(before)][:most]
            kept = {key: known for key, known in world.keys.items() if key not in old}
            self._cluster.world = replace(world, keys=kept)

    def old_terms(self, most: int) -> tuple[Term, ...]:
        """Terms beyond the newest `most`."""
        terms = self._world().terms
        return tuple(terms[epoch] for epoch in sorted(terms)[:-most])

    def forget_terms(self, epochs: Sequence[int]) -> None:
        """Forget some terms."""
        with self._cluster.lock:
            world = self._world()
            self._check_epoch(world)
            if all(epoch in world.terms for epoch in epochs):
                kept = {epoch: term for epoch, term in world.terms.items() if epoch not in epochs}
                self._cluster.world = replace(world, terms=kept)

    def forget_outcomes(self, commands: Sequence[CommandId]) -> None:
        """Forget some outcomes."""
        with self._cluster.lock:
            world = self._world()
            self._check_epoch(world)
            if all(command in world.outcomes for command in commands):
                self._forget(world, commands)

    def _forget(self, world: World, commands: Sequence[CommandId]) -> None:
        kept = {key: outcome for key, outcome in world.outcomes.items() if key not in commands}
        self._cluster.world = replace(world, outcomes=kept)

    def _check_epoch(self, world: World) -> None:
        if (world.epoch, world.schema) != (self._epoch, self._schema):
            raise FencedOutError(
                f"epoch {self._epoch} of schema {self._schema} is over: now they are {world.epoch} and "
                f"{world.schema}"
            )

    def _world(self) -> World:
        if not self._cluster.available:
            raise StoreUnavailableError("the store was switched off by a test")
        return self._cluster.world


def _applied(world: World, write: w.Write) -> World:
    match write:
        case w.CreateRun() | w.PutRun() | w.RemoveRun():
            return replace(world, runs=_runs_after(world.runs, write))
        case w.CreatePipeline() | w.PutPipeline() | w.RemovePipelineRecord():
            return replace(world, pipelines=_pipelines_after(world.pipelines, write))
        case w.PutBackfill() | w.RemoveBackfill():
            return replace(world, backfills=_backfills_after(world.backfills, write))
        case w.PutIntervals():
            return replace(world, intervals=_intervals_after(world.intervals, write))
        case w.ConsumeCommand(outcome):
            return replace(
                world,
                commands=_removed(world.commands, outcome.command),
                outcomes=_created(world.outcomes, outcome.command, outcome),
                keys=_keys_after(world.keys, outcome),
            )
        case w.PutAbdication() | w.CreateTerm() | w.PutTerm() | w.PutSettings() | w.RaiseSchema():
            return _after_cluster_write(world, write)
        case w.Assign() | w.Unassign():
            return replace(world, orders=_orders_after(world.orders, write))
        case w.CreateAlert() | w.PutAlert() | w.RemoveAlert() | w.PutHealth() | w.RemoveHealth():
            return _after_alert(world, write)
        case _:
            return replace(world, slots=_slots_after(world.slots, write))


def _runs_after(runs: dict[RunId, Run], write: w.CreateRun | w.PutRun | w.RemoveRun) -> dict[RunId, Run]:
    match write:
        case w.CreateRun(run):
            return _created(runs, run.id, run)
        case w.PutRun(run, _):
            return _changed(runs, run.id, run)
        case w.RemoveRun(run_id):
            return _removed(runs, run_id)
        case _:
            assert_never(write)


def _keys_after(keys: dict[str, KeyedCommand], outcome: CommandOutcome) -> dict[str, KeyedCommand]:
    if (key := outcome.key) is None:
        return keys
    return _changed(keys, key.hash, KeyedCommand(request=key.request, outcome=outcome))


def _after_cluster_write(
    world: World, write: w.PutAbdication | w.CreateTerm | w.PutTerm | w.PutSettings | w.RaiseSchema
) -> World:
    match write:
        case w.CreateTerm(term):
            return replace(world, terms=_created(world.terms, term.epoch, term))
        case w.PutTerm(term):
            return replace(world, terms=_changed(world.terms, term.epoch, term))
        case w.PutAbdication(abdication):
            return replace(world, abdication=abdication)
        case w.PutSettings(settings):
            return replace(world, settings=settings)
        case w.RaiseSchema(schema):
            return replace(world, schema=schema)
        case _:
            assert_never(write)


def _pipelines_after(
    pipelines: dict[PipelineName, PipelineRecord],
    write: w.CreatePipeline | w.PutPipeline | w.RemovePipelineRecord,
) -> dict[PipelineName, PipelineRecord]:
    match write:
        case w.CreatePipeline(record):
            return _created(pipelines, record.name, record)
        case w.PutPipeline(record, _):
            return _changed(pipelines, record.name, record)
        case w.RemovePipelineRecord(record):
            return _removed(pipelines, record.name)
        case _:
            assert_never(write)


def _backfills_after(
    backfills: dict[BackfillId, Backfill], write: w.PutBackfill | w.RemoveBackfill
) -> dict[BackfillId, Backfill]:
    if isinstance(write, w.RemoveBackfill):
        return _removed(backfills, write.backfill.id)
    return (_created if write.before is None else _changed)(backfills, write.backfill.id, write.backfill)


def _after_alert(world: World, write: w.AlertWrite) -> World:
    match write:
        case w.CreateAlert(alert):
            return replace(world, alerts=_created(world.alerts, alert.id, alert))
        case w.PutAlert(alert):
            return replace(world, alerts=_changed(world.alerts, alert.id, alert))
        case w.RemoveAlert(alert_id):
            return replace(world, alerts=_removed(world.alerts, alert_id))
        case w.PutHealth(health, is_new):
            put = _created if is_new else _changed
            return replace(world, health=put(world.health, health.name, health))
        case w.RemoveHealth(pipeline):
            return replace(world, health=_removed(world.health, pipeline))
        case _:
            assert_never(write)


def _intervals_after(
    indexes: dict[PipelineName, IntervalIndex], write: w.PutIntervals
) -> dict[PipelineName, IntervalIndex]:
    if write.index is None:
        return _removed(indexes, write.pipeline)
    return (_created if write.before is None else _changed)(indexes, write.pipeline, write.index)


def _orders_after(
    orders: dict[tuple[WorkerId, AttemptId], Assignment], write: w.Assign | w.Unassign
) -> dict[tuple[WorkerId, AttemptId], Assignment]:
    match write:
        case w.Assign(worker, assignment):
            return _created(orders, (worker, AttemptId.parse(assignment.attempt)), assignment)
        case w.Unassign(worker, attempt):
            return _removed(orders, (worker, attempt))
        case _:
            assert_never(write)


def _slots_after(
    slots: dict[AttemptId, Slots],
    write: w.CreateAttempt | w.RemoveAttempt | w.WriteClaim | w.WriteEnd | w.RequestStop,
) -> dict[AttemptId, Slots]:
    match write:
        case w.CreateAttempt(attempt):
            return _created(slots, attempt, Slots())
        case w.RemoveAttempt(attempt):
            return {key: value for key, value in slots.items() if key != attempt}
        case w.WriteClaim(attempt, claim):
            _free(attempt, "claim", _there(slots, attempt).claim)
            return {**slots, attempt: replace(slots[attempt], claim=claim)}
        case w.WriteEnd(attempt, end):
            _free(attempt, "end", _there(slots, attempt).end)
            return {**slots, attempt: replace(slots[attempt], end=end)}
        case w.RequestStop(attempt, _):
            _free(attempt, "stop", _there(slots, attempt).stop_requested or None)
            return {**slots, attempt: replace(slots[attempt], stop_requested=True)}
        case _:
            assert_never(write)


def _there(slots: dict[AttemptId, Slots], attempt: AttemptId) -> Slots:
    if attempt not in slots:
        raise StaleStateError(f"attempt {attempt} is not there")
    return slots[attempt]


def _free(attempt: AttemptId, slot: str, standing: object) -> None:
    if standing is not None:
        raise SlotTakenError(f"{attempt}/{slot}")


def _created(records: dict, key: object, value: object) -> dict:  # type: ignore[type-arg]  # one helper for all kinds
    if key in records:
        raise SlotTakenError(str(key))
    return {**records, key: value}


def _changed(records: dict, key: object, value: object) -> dict:  # type: ignore[type-arg]
    if key not in records:
        raise StaleStateError(f"{key} is not there")
    return {**records, key: value}


def _removed(records: dict, key: object) -> dict:  # type: ignore[type-arg]
    if key not in records:
        raise StaleStateError(f"{key} is not there")
    return {other: value for other, value in records.items() if other != key}
