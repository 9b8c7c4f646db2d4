"""A cluster in a dict, for tests of engine, API and simulator: its records, and the roles of others.

Everything goes through the shipped adapters and codecs. `DictCluster.world` decodes what was written, so a
test reads what the next leader would read.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from leader import EpochRecord, FencingToken
from leader.protocol.terms import decode_epoch, encode_epoch
from nimbus import records, run_record
from nimbus.adapters.sqlite.calls import SqliteChanges
from nimbus.adapters.store import board, catalog, datasets, intervals, runs
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.nodes import body_of, queued_commands
from nimbus.adapters.store.paths import HEARTBEAT, STOP, Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.workers import Assignment, WorkerInfo
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import Abdication, CommandOutcome, KeyedCommand, QueuedCommand
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, DatasetName, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.run import Run
from nimbus.domain.starts.due import Due
from tests.nimbus.dict_store import DictCalls, DictSession, DictStore
from tests.nimbus.leader_writes import RecordedTransaction

ROOT = "/nimbus"
PATHS = Paths(ROOT)
EPOCH = f"{ROOT}/epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All records. It is replaced as a whole, so it can be kept to compare it later."""

    epoch: int = 1
    schema: int = 1
    pipelines: dict[PipelineName, PipelineRecord] = field(default_factory=dict)
    intervals: dict[PipelineName, IntervalIndex] = field(default_factory=dict)
    datasets: dict[DatasetName, Dataset] = field(default_factory=dict)
    due: dict[PipelineName, Due] = field(default_factory=dict)
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


class DictCluster:
    """The store, and what tests change in it in the roles of workers, runners and operators."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self.store = DictStore() if now_ms is None else DictStore(now_ms)
        self.commits: list[tuple[w.Write, ...]] = []
        self._calls = DictCalls(Always(self.store))
        self._world = World()
        self._changed: deque[tuple[str, str]] = deque()
        for path in PATHS.always():
            self._calls.ensure(path)
        self._calls.create(EPOCH, encode_epoch(EpochRecord(1, schema=1)))
        self._writer = TreeLeaderStore(self._calls, ROOT, self.token(1))
        self.store.followers += (self._note,)

    @property
    def available(self) -> bool:
        """True if the store answers."""
        return self.store.available

    @available.setter
    def available(self, available: bool) -> None:
        self.store.available = available

    def calls(self) -> DictCalls:
        """The calls of a new session."""
        return DictCalls(self.store)

    def changes(self) -> SqliteChanges:
        """A feed of changes."""
        return SqliteChanges(self.calls().session, ROOT)

    def reader(self) -> TreeClusterReader:
        """The reader of a new session."""
        return TreeClusterReader(self.calls(), ROOT)

    def queue(self) -> TreeCommandQueue:
        """The queue of commands, of a new session."""
        return TreeCommandQueue(self.calls(), ROOT)

    def token(self, epoch: int) -> FencingToken:
        """The token of a term that holds if no later one has begun."""
        now = decode_epoch(self._calls.get(EPOCH) or b"", EPOCH).epoch
        stat = self.store.tree.stat(EPOCH)
        assert stat is not None
        return FencingToken(path=EPOCH, version=stat.version if epoch == now else -2, epoch=epoch)

    # -- what is there

    @property
    def world(self) -> World:
        """The records, decoded."""
        if self._changed:
            with self.store.lock:
                changed = dict.fromkeys(self._changed)
                self._changed.clear()
                self._world = replace(self._world, **self._read(changed))
        return self._world

    def _note(self, changes: Iterable[Any]) -> None:
        for change in changes:
            kind, _, rest = change.path.removeprefix(f"{ROOT}/").partition("/")
            name = rest if kind == "assignments" else rest.partition("/")[0]
            self._changed.append(("pipelines" if kind == "schedules" else kind, name))

    def _read(self, changed: Iterable[tuple[str, str]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for kind, name in changed:
            if kind == "epoch":
                epoch = decode_epoch(self._calls.get(EPOCH) or b"", EPOCH)
                found |= {"epoch": epoch.epoch, "schema": epoch.schema}
            elif kind == "settings":
                data = self._calls.get(PATHS.settings)
                found["settings"] = records.SETTINGS.decode(data, kind) if data else ClusterSettings()
            elif kind == "abdication":
                data = self._calls.get(PATHS.abdication)
                found["abdication"] = records.ABDICATION.decode(data, kind) if data else None
            elif name and kind in _READ and (kind != "assignments" or "/" in name):
                where, key, read = _READ[kind]
                if where not in found:
                    known = getattr(self._world, where)
                    found[where] = {one.id: one for one in known} if kind == "schedulers" else dict(known)
                value = read(self, name)
                if value is None:
                    found[where].pop(key(name), None)
                else:
                    found[where][key(name)] = value
        if (listed := found.get("schedulers")) is not None:
            found["schedulers"] = tuple(listed[name] for name in sorted(listed))
        return found

    def _record(self, codec: records.Codec[Any], path: str) -> Any:
        data = self._calls.get(path)
        return None if data is None else codec.decode(data, path)

    def _slots(self, name: str) -> Slots | None:
        attempt = AttemptId.parse(name)
        if not self._calls.exists(PATHS.attempt(attempt)):
            return None
        return board.read_slots(self._calls, PATHS, {attempt: None})[attempt]

    def _order(self, name: str) -> Assignment | None:
        found: Assignment | None = self._record(records.ASSIGNMENT, f"{PATHS.assignments}/{name}")
        if found is None or not found.needs_in_run:
            return found
        run = runs.read_run(self._calls, PATHS, found.run)
        return found if run is None else runs.completed_order(found, run)

    # -- changes by others

    def change(self, **parts: Any) -> None:
        """Replace parts of the world."""
        before = self.world
        names = [one.name for one in fields(World) if one.name in parts]
        self._execute(
            operation
            for name in names
            for operation in self._operations(name, getattr(before, name), parts[name])
        )

    def _execute(self, operations: Iterable[Operation]) -> None:
        """Execute them in one transaction."""
        with self._calls.session.writing() as tree:
            for kind, path, data, _ in operations:
                if kind == "delete":
                    tree.delete(path)
                elif kind == "create":
                    tree.ensure(path.rpartition("/")[0])
                    tree.create(path, data)
                    if path.startswith(f"{PATHS.workers}/"):
                        tree.ensure(path.replace(PATHS.workers, PATHS.assignments))
                else:
                    tree.set_data(path, data)

    def set(self, name: str, key: Any, record: Any) -> None:
        """Add or replace a record of a part of the world; None: remove it."""
        before = getattr(self.world, name).get(key)
        if before != record:
            self._execute(self._of(name, key, before, record))

    def put(
        self,
        *added: PipelineRecord | Run | Backfill | SchedulerInfo | WorkerInfo | ClusterSettings | Alert | Term,
    ) -> None:
        """Add or replace records."""
        for record in added:
            match record:
                case PipelineRecord():
                    self.set("pipelines", record.name, record)
                case Run():
                    self.set("runs", record.id, record)
                case Backfill():
                    self.set("backfills", record.id, record)
                case SchedulerInfo():
                    others = (one for one in self.world.schedulers if one.id != record.id)
                    self.change(schedulers=(*others, record))
                case WorkerInfo():
                    self.set("workers", record.id, record)
                case ClusterSettings():
                    self.change(settings=record)
                case Alert():
                    self.set("alerts", record.id, record)
                case Term():
                    self.set("terms", record.epoch, record)

    def answer(self, outcome: CommandOutcome) -> None:
        """Act as the leader: decide a waiting command."""
        self._execute(self._writer._operations(w.ConsumeCommand(outcome)))

    def set_slots(self, attempt: AttemptId, slots: Slots) -> None:
        """Act as a runner or a worker."""
        self.set("slots", attempt, slots)

    def _operations(self, name: str, before: Any, after: Any) -> Iterator[Operation]:
        match name:
            case "epoch":
                yield Operation("set", EPOCH, encode_epoch(EpochRecord(after, schema=self.world.schema)))
            case "schema":
                now = decode_epoch(self._calls.get(EPOCH) or b"", EPOCH).epoch
                yield Operation("set", EPOCH, encode_epoch(EpochRecord(now, schema=after)))
            case "settings":
                yield Operation("set", PATHS.settings, records.SETTINGS.encode(after))
            case "abdication":
                yield Operation("set", PATHS.abdication, records.ABDICATION.encode(after))
            case _:
                if name == "schedulers":
                    before, after = ({one.id: one for one in some} for some in (before, after))
                for key in {**before, **after}:
                    if before.get(key) != after.get(key):
                        yield from self._of(name, key, before.get(key), after.get(key))

    def _of(self, name: str, key: Any, before: Any, after: Any) -> Iterator[Operation]:
        match name:
            case "slots":
                yield from _slots_changed(key, before, after)
            case "runs":  # also what the shipped store would refuse, because it could grow too large
                if before is not None:
                    yield from self._writer._operations(w.RemoveRun(key))
                for part, data in ({} if after is None else run_record.encode_new(after)).items():
                    yield Operation("create", PATHS.run_part(key, part), data)
            case (
                "pipelines" | "intervals" | "datasets" | "due" | "backfills" | "alerts" | "health" | "orders"
            ):
                yield from self._writer._operations(_write(name, key, before, after))
            case _:
                path, encode = _PLAIN[name]
                if after is None:
                    yield Operation("delete", path(key))
                else:
                    yield Operation("create" if before is None else "set", path(key), encode(after))


class Always(DictSession):
    """The session of the test itself: it works while the store does not answer."""

    def reach(self) -> None:
        """Nothing holds it up."""


class DictTransaction(RecordedTransaction):
    """A transaction of a `DictLeaderStore`."""

    def __init__(self, store: DictLeaderStore) -> None:
        super().__init__(store._write, store._operations)
        self._store = store

    def commit(self) -> None:
        """Execute all writes."""
        if self.writes:
            self._store._execute = super().commit
            self._store._commit(self.writes)


class DictLeaderStore(TreeLeaderStore):
    """The shipped store of a leader, in a dict."""

    def __init__(self, cluster: DictCluster, epoch: int) -> None:
        super().__init__(cluster.calls(), ROOT, cluster.token(epoch))
        self.cluster = cluster
        self._execute: Callable[[], None] = lambda: None

    def begin(self) -> DictTransaction:
        """Begin to collect writes."""
        return DictTransaction(self)

    def _commit(self, writes: Sequence[w.Write]) -> None:
        """Execute the writes of a transaction. Subclasses interrupt it."""
        self._execute()
        self.cluster.commits.append(tuple(writes))


def _write(name: str, key: Any, before: Any, after: Any) -> w.Write:
    """The leader's write for a change of a record."""
    match name:
        case "pipelines":
            return _of_three(before, after, w.CreatePipeline, w.PutPipeline, w.RemovePipelineRecord)
        case "intervals":
            return w.PutIntervals(key, after, before)
        case "datasets":
            return w.RemoveDatasetRecord(before) if after is None else w.PutDataset(after, before)
        case "due":
            return w.PutDue(key, after, before)
        case "backfills":
            return w.RemoveBackfill(before) if after is None else w.PutBackfill(after, before)
        case "alerts":
            return _of_three(
                before, after, w.CreateAlert, lambda new, _: w.PutAlert(new), lambda _: w.RemoveAlert(key)
            )
        case "health":
            return w.RemoveHealth(key) if after is None else w.PutHealth(after, before is None)
        case _:
            return w.Unassign(*key) if after is None else w.Assign(key[0], after)


def _of_three(before: Any, after: Any, create: Any, put: Any, remove: Any) -> w.Write:
    if after is None:
        return remove(before)
    return create(after) if before is None else put(after, before)


def _slots_changed(attempt: AttemptId, before: Slots | None, after: Slots | None) -> Iterator[Operation]:
    old, new = (_nodes(attempt, slots) for slots in (before, after))
    for path in [*old][::-1]:
        if path not in new:
            yield Operation("delete", path)
    for path, data in new.items():
        if path not in old:
            yield Operation("create", path, data)
        elif old[path] != data:
            yield Operation("set", path, data)


def _nodes(attempt: AttemptId, slots: Slots | None) -> Mapping[str, bytes]:
    """The nodes of an attempt, parents first."""
    if slots is None:
        return {}
    parent = PATHS.attempt(attempt)
    found = {parent: b""}
    if slots.claim is not None:
        found[PATHS.claim(attempt)] = records.CLAIM.encode(slots.claim)
        if slots.claim.nonce is not None:
            found[PATHS.nonce(attempt, slots.claim.nonce)] = b""
    if slots.end is not None:
        found[PATHS.end(attempt)] = records.END.encode(slots.end)
    if slots.has_heartbeat or slots.progress:
        found[f"{parent}/{HEARTBEAT}"] = board._heartbeat(slots.progress)
    if slots.checkpoint is not None:
        found[PATHS.checkpoint(attempt)] = json.dumps({"checkpoint": slots.checkpoint}).encode()
    if slots.stop_requested:
        found[f"{parent}/{STOP}"] = b""
    if slots.submitted is not None:
        found[PATHS.submitted(attempt, slots.submitted)] = b""
    return found


def _command_body(queued: QueuedCommand) -> bytes:
    return records.COMMAND.encode(body_of(queued))


def _command(cluster: DictCluster, name: str) -> QueuedCommand | None:
    data = cluster._calls.get(PATHS.command(CommandId(name)))
    return None if data is None else queued_commands(PATHS, [(name, data)])[0]


_PLAIN: dict[str, tuple[Callable[[Any], str], Callable[[Any], bytes]]] = {
    "commands": (PATHS.command, _command_body),
    "outcomes": (PATHS.outcome, records.OUTCOME.encode),
    "keys": (PATHS.key, records.KEY.encode),
    "terms": (PATHS.term, records.TERM.encode),
    "workers": (PATHS.worker, records.WORKER.encode),
    "schedulers": (PATHS.scheduler, records.SCHEDULER.encode),
}
"""Kinds of records with one node each that no write of the leader creates."""


def _plain(codec: records.Codec[Any], parent: str) -> Callable[[DictCluster, str], Any]:
    return lambda cluster, name: cluster._record(codec, f"{parent}/{name}")


def _order_key(name: str) -> tuple[WorkerId, AttemptId]:
    worker, _, attempt = name.partition("/")
    return WorkerId(worker), AttemptId.parse(attempt)


_READ: dict[str, tuple[str, Callable[[str], Any], Callable[[DictCluster, str], Any]]] = {
    "pipelines": (
        "pipelines",
        PipelineName,
        lambda cluster, name: catalog.read_pipeline(cluster._calls, PATHS, PipelineName(name)),
    ),
    "intervals": (
        "intervals",
        PipelineName,
        lambda cluster, name: intervals.read(cluster._calls, PATHS, PipelineName(name)),
    ),
    "datasets": ("datasets", DatasetName, _plain(datasets.CODEC, PATHS.datasets)),
    "due": ("due", PipelineName, _plain(datasets.DUE_CODEC, PATHS.due)),
    "backfills": ("backfills", BackfillId, _plain(records.BACKFILL, PATHS.backfills)),
    "runs": ("runs", RunId, lambda cluster, name: runs.read_run(cluster._calls, PATHS, RunId(name))),
    "commands": ("commands", CommandId, _command),
    "outcomes": ("outcomes", CommandId, _plain(records.OUTCOME, PATHS.outcomes)),
    "keys": ("keys", str, _plain(records.KEY, PATHS.keys)),
    "terms": ("terms", int, _plain(records.TERM, PATHS.terms)),
    "workers": ("workers", WorkerId, _plain(records.WORKER, PATHS.workers)),
    "schedulers": ("schedulers", str, _plain(records.SCHEDULER, PATHS.schedulers)),
    "attempts": ("slots", AttemptId.parse, DictCluster._slots),
    "assignments": ("orders", _order_key, DictCluster._order),
    "alerts": ("alerts", str, _plain(records.ALERT, PATHS.alerts)),
    "health": ("health", PipelineName, _plain(records.HEALTH, PATHS.health)),
}
"""How the records of each kind are read: the part of the world, the key from the name, the value."""
