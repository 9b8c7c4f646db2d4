"""The leader's reads and writes: one fenced transaction for each decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import structlog
from kazoo.exceptions import NodeExistsError

from leader import FencingToken, TransactionRefusedError, schema_raised
from nimbus import records
from nimbus.adapters.store import catalog, datasets, intervals, nodes, runs
from nimbus.adapters.store.board import read_ends, read_slots
from nimbus.adapters.store.calls import (
    Calls,
    StoreTransaction,
    WatchCallback,
    batched,
    check_size,
    readable,
    readable_record,
)
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation, TreeTransaction, put, size_bytes
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import Abdication, KeyedCommand, QueuedCommand
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, DatasetName, PipelineName, RunId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.run import Run
from nimbus.domain.starts.due import Due
from nimbus.ports import (
    CatalogPart,
    Enqueue,
    LoadedPart,
    Pruned,
    RegisteredPart,
    RunsPart,
    SlotTakenError,
    StaleStateError,
)

_log = structlog.get_logger(__name__)


MAX_COMMANDS = 1000
"""Most commands that are read at once, oldest first; the others when the queue changes."""

MAX_PRUNED = 500
"""Most outcomes that are examined at once: reads take milliseconds, deletions are one transaction."""


def _nobody() -> None:
    """The callback before `subscribe`."""


class TreeLeaderStore:
    """See `nimbus.ports.LeaderStore`. Engine thread only, except for the watches, which only enqueue."""

    runs_at_once = 250
    """Runs that a new leader reads before it decides about them: with their slots, about 0.1 s."""

    def __init__(self, calls: Calls, root: str, token: FencingToken) -> None:
        self._calls = calls
        self._paths = Paths(root)
        self._token = token
        self._keys_left = deque[str]()
        """Listed names of keys that were not examined yet."""
        self._on_commands: Enqueue = _nobody
        self._on_workers: Enqueue = _nobody
        self._on_attempt: Callable[[AttemptId], None] = lambda _attempt: None

    def subscribe(self, *, commands: Enqueue, workers: Enqueue, attempt: Callable[[AttemptId], None]) -> None:
        self._on_commands, self._on_workers, self._on_attempt = commands, workers, attempt

    def load(self) -> Iterator[LoadedPart]:
        for path in self._paths.always():
            self._calls.ensure(path)
        yield RegisteredPart(
            workers=self.read_workers(),
            schedulers=self.read_schedulers(),
            abdication=self._read_abdication(),
            terms=self.read_terms(),
            settings=nodes.read_settings(self._calls, self._paths),
            intervals=intervals.read_all(self._calls, self._paths),
            datasets=datasets.read_to_publish(self._calls, self._paths),
            due=datasets.read_all_due(self._calls, self._paths),
            backfills=nodes.read_all(self._calls, self._paths.backfills, records.BACKFILL),
            alerts=self.read_alerts(),
            health=self.read_health(),
        )
        for names in batched(self._calls.children(self._paths.runs) or (), self.runs_at_once):
            some = tuple(runs.readable_runs(self._calls, self._paths, names))
            slots = self.read_slots([attempt for run in some for attempt in run.open_attempts()])
            yield RunsPart(runs=some, slots=slots)
        pipelines = tuple(catalog.readable_pipelines(self._calls, self._paths))
        yield CatalogPart(pipelines=pipelines, commands=self.read_commands((), MAX_COMMANDS))

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        names = self._calls.children(self._paths.commands, self._on_commands) or ()
        new = [name for name in names if name not in known][:most]
        return nodes.queued_commands(self._paths, self._calls.read_all(self._paths.commands, new))

    def _read_abdication(self) -> Abdication | None:
        path = self._paths.abdication
        return readable_record(records.ABDICATION, self._calls.get(path) or None, path)

    def read_terms(self) -> tuple[Term, ...]:
        return nodes.read_newest_terms(self._calls, self._paths)

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        return nodes.read_all(self._calls, self._paths.workers, records.WORKER, self._on_workers)

    def read_schedulers(self) -> tuple[SchedulerInfo, ...]:
        return nodes.read_all(self._calls, self._paths.schedulers, records.SCHEDULER)

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        changed = {attempt: WatchCallback(self._on_attempt, attempt) for attempt in attempts}
        return read_slots(self._calls, self._paths, changed, progress=False)

    def await_ends(self, attempts: Iterable[AttemptId]) -> None:
        self._calls.await_all(
            {self._paths.end(attempt): WatchCallback(self._on_attempt, attempt) for attempt in attempts}
        )

    def read_ends(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        return read_ends(self._calls, self._paths, attempts)

    def read_run(self, run: RunId) -> Run | None:
        return next(runs.readable_runs(self._calls, self._paths, [run]), None)

    def read_pipeline(self, name: PipelineName) -> PipelineRecord | None:
        return next(catalog.readable_pipelines(self._calls, self._paths, [name]), None)

    def read_backfill(self, backfill: BackfillId) -> Backfill | None:
        path = self._paths.backfill(backfill)
        return readable_record(records.BACKFILL, self._calls.get(path), path)

    def read_intervals(self, name: PipelineName) -> IntervalIndex | None:
        return intervals.read(self._calls, self._paths, name)

    def read_datasets(self, names: Iterable[DatasetName]) -> Mapping[DatasetName, Dataset]:
        return datasets.read_to_publish(self._calls, self._paths, names)

    def read_due(self, name: PipelineName) -> Due | None:
        data = self._calls.get(self._paths.due_of(name))
        return None if data is None else datasets.due_for_leader(name, data, self._paths.due)

    def prune_outcomes(self, before: datetime, most: int) -> Pruned:
        """Examine the oldest outcomes, at most MAX_PRUNED at once; unreadable ones stay."""
        names = self._calls.children(self._paths.outcomes) or ()
        looked_at, beyond = names[:MAX_PRUNED], set(names[: max(0, len(names) - most)])
        outcomes = readable(
            records.OUTCOME, self._calls.read_all(self._paths.outcomes, looked_at), self._paths.outcomes
        )
        old = [o for o in outcomes if o.decided_at < before or o.command in beyond]
        lost = set(names[: max(0, len(names) - 2 * most)])
        if gone := [o.command for o in old if o.command in lost]:
            _log.warning("outcomes_dropped", count=len(gone))
            self.forget_outcomes(gone)
        return Pruned(tuple(o for o in old if o.command not in lost), more=len(old) == MAX_PRUNED)

    def forget_outcomes(self, commands: Sequence[CommandId]) -> None:
        self._forget("outcomes", map(self._paths.outcome, commands))

    def old_terms(self, most: int) -> tuple[Term, ...]:
        return nodes.read_old_terms(self._calls, self._paths, most)

    def forget_terms(self, epochs: Sequence[int]) -> None:
        self._forget("terms", map(self._paths.term, epochs))

    def prune_keys(self, before: datetime, most: int) -> None:
        """Delete old keys among the next ones; the names are listed again after all were examined."""
        if not self._keys_left:
            self._keys_left.extend(self._calls.children(self._paths.keys) or ())
        looked_at = [self._keys_left.popleft() for _ in range(min(most, len(self._keys_left)))]
        keys = ((self._paths.key(n), data) for n, data in self._calls.read_all(self._paths.keys, looked_at))
        paths = [path for path, data in keys if _is_old_key(path, data, before)]
        if paths:
            self._forget("keys", paths)

    def _forget(self, kind: str, paths: Iterable[str]) -> None:
        """Delete some nodes in one transaction. If one of them is gone, the next time finds the rest."""
        try:
            self._write([Operation("delete", path) for path in paths])
        except StaleStateError as exc:
            _log.info(f"{kind}_not_pruned", error=str(exc))

    def read_alerts(self) -> tuple[Alert, ...]:
        return nodes.read_alerts(self._calls, self._paths)

    def read_health(self) -> tuple[PipelineHealth, ...]:
        return nodes.read_all(self._calls, self._paths.health, records.HEALTH)

    def begin(self) -> TreeTransaction:
        return TreeTransaction(self._write, self._operations)

    def _write(self, operations: Sequence[Operation]) -> None:
        def build(transaction: StoreTransaction) -> None:
            for kind, path, data, _ in operations:
                match kind:
                    case "create":
                        transaction.create(path, data)
                    case "set":
                        transaction.set_data(path, data)
                    case "delete":
                        transaction.delete(path)

        what = ", ".join(operation.path for operation in operations)
        check_size(what, size_bytes(operations))
        try:
            self._calls.fenced(f"write {what}", self._token, build)
        except TransactionRefusedError as exc:
            refused = operations[exc.index]
            if isinstance(exc.__cause__, NodeExistsError):
                raise SlotTakenError(refused.path) from exc
            raise StaleStateError(f"{refused.kind} {refused.path}: {exc}") from exc

    def _operations(self, write: w.Write) -> Iterator[Operation]:
        paths = self._paths
        match write:
            case w.CreateRun(run):
                yield from runs.creation(paths, run)
            case w.PutRun(run, was):
                yield from runs.change(paths, run, was)
            case w.RemoveRun(run_id):
                yield from runs.removal(self._calls, paths, run_id)
            case w.CreatePipeline(record):
                yield from catalog.creation(paths, record)
            case w.PutPipeline(record, before):
                yield from catalog.change(paths, record, before)
            case w.RemovePipelineRecord(record):
                yield from catalog.removal(paths, record)
            case (
                w.PutIntervals()
                | w.PutDataset()
                | w.RemoveDatasetRecord()
                | w.PutDue()
                | w.PutBackfill()
                | w.RemoveBackfill()
            ):
                yield from self._of_dates(write)
            case w.CreateAlert() | w.PutAlert() | w.RemoveAlert() | w.PutHealth() | w.RemoveHealth():
                yield self._of_alerts(write)
            case (
                w.ConsumeCommand()
                | w.PutCommand()
                | w.PutAbdication()
                | w.CreateTerm()
                | w.PutTerm()
                | w.PutSettings()
                | w.RaiseSchema()
            ):
                yield from self._of_cluster(write)
            case _:
                yield from self._of_attempts(write)

    def _of_dates(self, write: w.DataWrite | w.PutBackfill | w.RemoveBackfill) -> Iterator[Operation]:
        match write:
            case w.PutIntervals():
                yield from intervals.change(self._paths, write)
            case w.PutDataset() | w.RemoveDatasetRecord():
                yield datasets.change(self._paths, write)
            case w.PutDue():
                yield datasets.due_change(self._paths, write)
            case w.PutBackfill(backfill, before):
                path = self._paths.backfill(backfill.id)
                yield put(path, records.BACKFILL.encode(backfill), is_new=before is None)
            case w.RemoveBackfill(backfill):
                yield Operation("delete", self._paths.backfill(backfill.id))

    def _of_alerts(self, write: w.AlertWrite) -> Operation:
        paths = self._paths
        match write:
            case w.CreateAlert(alert) | w.PutAlert(alert):
                is_new = isinstance(write, w.CreateAlert)
                return put(paths.alert(alert.id), records.ALERT.encode(alert), is_new=is_new)
            case w.RemoveAlert(alert_id):
                return Operation("delete", paths.alert(alert_id))
            case w.PutHealth(health, is_new):
                return put(paths.health_of(health.name), records.HEALTH.encode(health), is_new=is_new)
            case w.RemoveHealth(pipeline):
                return Operation("delete", paths.health_of(pipeline))

    def _of_cluster(
        self,
        write: w.ConsumeCommand
        | w.PutCommand
        | w.PutAbdication
        | w.CreateTerm
        | w.PutTerm
        | w.PutSettings
        | w.RaiseSchema,
    ) -> Iterator[Operation]:
        paths = self._paths
        match write:
            case w.PutCommand(queued, is_new):
                yield put(
                    paths.command(queued.id), records.COMMAND.encode(nodes.body_of(queued)), is_new=is_new
                )
            case w.ConsumeCommand(outcome):
                yield Operation("delete", paths.command(outcome.command))
                yield Operation("create", paths.outcome(outcome.command), records.OUTCOME.encode(outcome))
                if (key := outcome.key) is not None:
                    known = KeyedCommand(request=key.request, outcome=outcome)
                    yield Operation("set", paths.key(key.hash), records.KEY.encode(known))
            case w.CreateTerm(term) | w.PutTerm(term):
                is_new = isinstance(write, w.CreateTerm)
                yield put(paths.term(term.epoch), records.TERM.encode(term), is_new=is_new)
            case w.PutAbdication(abdication):
                yield Operation("set", paths.abdication, records.ABDICATION.encode(abdication))
            case w.PutSettings(settings):
                yield Operation("set", paths.settings, records.SETTINGS.encode(settings))
            case w.RaiseSchema(schema):
                yield Operation("set", self._token.path, schema_raised(self._token, schema))

    def _of_attempts(
        self,
        write: w.CreateAttempt
        | w.RemoveAttempt
        | w.Assign
        | w.Unassign
        | w.WriteClaim
        | w.WriteEnd
        | w.RequestStop,
    ) -> Iterator[Operation]:
        paths = self._paths
        match write:
            case w.CreateAttempt(attempt):
                yield Operation("create", paths.attempt(attempt))
            case w.RemoveAttempt(attempt):
                parent = paths.attempt(attempt)
                names = self._calls.children(parent)
                if names is not None:
                    yield from (Operation("delete", f"{parent}/{name}") for name in names)
                    yield Operation("delete", parent)
            case w.Assign(worker, assignment):
                path = paths.order(worker, AttemptId.parse(assignment.attempt))
                yield Operation("create", path, runs.encode_order(assignment))
            case w.Unassign(worker, attempt):
                yield Operation("delete", paths.order(worker, attempt))
            case w.WriteClaim(attempt, claim):
                yield Operation("create", paths.claim(attempt), records.CLAIM.encode(claim))
            case w.WriteEnd(attempt, end):
                yield Operation("create", paths.end(attempt), records.END.encode(end))
            case w.RequestStop(attempt, reason):
                yield Operation("create", paths.stop(attempt), reason.encode())


def _is_old_key(path: str, data: bytes, before: datetime) -> bool:
    key = readable_record(records.KEY, data, path)
    return key is not None and key.may_be_forgotten(before)
