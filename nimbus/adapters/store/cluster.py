"""Access of any process to the live state: read it, queue commands, register, share keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kazoo.exceptions import NodeExistsError

from nimbus import records, run_record
from nimbus.adapters.store import datasets, intervals, nodes
from nimbus.adapters.store.board import read_slots
from nimbus.adapters.store.calls import (
    Calls,
    decoded,
    read_record,
    read_secret,
    readable,
    without_unreadable,
)
from nimbus.adapters.store.catalog import all_pipelines, read_pipeline, watched_pipelines
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.runs import all_runs, read_run, readable_runs
from nimbus.adapters.store.watched import WatchedNodes
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.access import Principal
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import (
    Command,
    CommandKey,
    CommandOutcome,
    KeyedCommand,
    KeyUsedError,
    QueuedCommand,
    newest_refusal,
)
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, DatasetName, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.runs.run import ListedRun, Run
from nimbus.domain.starts.due import Due
from nimbus.ports import Enqueue, SchedulerIdInUseError, WorkerIdInUseError
from nimbus.records import UnreadableRecordError


class TreeClusterReader:
    """See `nimbus.ports.ClusterReader`."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls = calls
        self._paths = Paths(root)
        self._names: dict[str, tuple[int | None, tuple[str, ...]]] = {}
        """Names below a node, with the transaction as of which (or later) they are current."""
        self._pipelines = WatchedNodes(self._calls, partial(watched_pipelines, self._calls, self._paths))
        self._listed = WatchedNodes(self._calls, self._read_listed)
        self._workers = WatchedNodes(self._calls, self._read_workers)
        self._orders = WatchedNodes(self._calls, self._list_orders)
        self._commands = WatchedNodes(self._calls, self._read_commands)

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        names = self._names_below(self._paths.pipelines)
        records = self._pipelines.values(names)
        return tuple(records[name] for name in names if name in records)

    def pipeline(self, name: PipelineName) -> PipelineRecord | None:
        return read_pipeline(self._calls, self._paths, name)

    def backfills(self) -> tuple[Backfill, ...]:
        return nodes.read_all(self._calls, self._paths.backfills, records.BACKFILL)

    def backfill(self, backfill: BackfillId) -> Backfill | None:
        return read_record(self._calls, self._paths.backfill(backfill), records.BACKFILL)

    def intervals(self, name: PipelineName) -> IntervalIndex | None:
        return intervals.read(self._calls, self._paths, name)

    def dataset_names(self) -> tuple[DatasetName, ...]:
        return tuple(map(DatasetName, self._names_below(self._paths.datasets)))

    def datasets(self, names: Iterable[DatasetName]) -> Mapping[DatasetName, Dataset]:
        nodes = self._calls.read_all(self._paths.datasets, names)
        return {dataset.name: dataset for dataset in readable(datasets.CODEC, nodes, self._paths.datasets)}

    def dataset(self, name: DatasetName) -> Dataset | None:
        return read_record(self._calls, self._paths.dataset(name), datasets.CODEC)

    def due(self, name: PipelineName) -> Due | None:
        return read_record(self._calls, self._paths.due_of(name), datasets.DUE_CODEC)

    def run_list(self) -> Mapping[str, ListedRun]:
        return self._listed.values(self._names_below(self._paths.runs))

    def runs(self, wanted: Iterable[RunId]) -> Mapping[RunId, Run]:
        return {run.id: run for run in readable_runs(self._calls, self._paths, wanted)}

    def run(self, run: RunId) -> Run | None:
        return read_run(self._calls, self._paths, run)

    def slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        return read_slots(self._calls, self._paths, dict.fromkeys(attempts))

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        return nodes.read_all(self._calls, self._paths.schedulers, records.SCHEDULER)

    def workers(self) -> tuple[WorkerInfo, ...]:
        workers = self._workers.values(self._calls.children(self._paths.workers) or ())
        return tuple(workers[name] for name in sorted(workers))

    def orders(self, workers: Iterable[WorkerId]) -> Mapping[WorkerId, Sequence[str]]:
        names = tuple(workers)
        orders = self._orders.values(names)
        return {name: orders.get(name, ()) for name in names}

    def commands(self) -> tuple[QueuedCommand, ...]:
        commands = self._commands.values(self._calls.children(self._paths.commands) or ())
        return tuple(commands[name] for name in sorted(commands))

    def settings(self) -> ClusterSettings:
        return nodes.read_settings(self._calls, self._paths)

    def terms(self, most: int) -> tuple[Term, ...]:
        return nodes.read_newest_terms(self._calls, self._paths, most)

    def alerts(self) -> tuple[Alert, ...]:
        return nodes.read_alerts(self._calls, self._paths)

    def _names_below(self, parent: str) -> tuple[str, ...]:
        stat = self._calls.stat(parent)
        zxid = None if stat is None else stat.children_zxid
        known, names = self._names.get(parent, (None, ()))
        if zxid != known:  # 10,000 names take 10 ms
            names = self._calls.children(parent) or ()
            self._names[parent] = zxid, names
        return names

    def _read_listed(self, changed: Mapping[str, Enqueue]) -> Mapping[str, ListedRun]:
        nodes = self._calls.read_watched(self._paths.runs, changed)
        listed = without_unreadable(decoded(run_record.listed, nodes, self._paths.runs))
        return {run.id: run for run in listed}

    def _read_workers(self, changed: Mapping[str, Enqueue]) -> Mapping[str, WorkerInfo]:
        nodes = self._calls.read_watched(self._paths.workers, changed)
        return {worker.id: worker for worker in readable(records.WORKER, nodes, self._paths.workers)}

    def _read_commands(self, changed: Mapping[str, Enqueue]) -> Mapping[str, QueuedCommand]:
        written = self._calls.read_watched(self._paths.commands, changed)
        return {queued.id: queued for queued in nodes.queued_commands(self._paths, written)}

    def _list_orders(self, changed: Mapping[str, Enqueue]) -> Mapping[str, tuple[str, ...]]:
        parents = [self._paths.orders(WorkerId(name)) for name in changed]
        names, _ = self._calls.list_and_read(parents, changed.values(), ())
        return {name: orders for name, orders in zip(changed, names, strict=True) if orders is not None}


class TreeCommandQueue:
    """See `nimbus.ports.CommandQueue`."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls = calls
        self._paths = Paths(root)

    def submit(
        self,
        command: Command,
        *,
        submitted_by: str,
        asked_by: Principal | None = None,
        key: CommandKey | None = None,
        if_match: tuple[str, ...] = (),
    ) -> CommandId:
        """Queue a command as the next sequential node; with a key, in one transaction with its node."""
        body = records.CommandBody(
            command=command,
            submitted_at=datetime.now(UTC).isoformat(),
            submitted_by=submitted_by,
            asked_by=asked_by,
            key=key,
            if_match=if_match,
        )
        self._calls.ensure(self._paths.commands)
        data = records.COMMAND.encode(body)
        if key is None:
            made = self._calls.create(self._paths.new_command, data, sequence=True)
        else:
            self._calls.ensure(self._paths.keys)
            known = records.KEY.encode(KeyedCommand(request=key.request))
            try:
                made = self._calls.create_with(
                    self._paths.new_command, data, self._paths.key(key.hash), known
                )
            except NodeExistsError as exc:
                raise KeyUsedError(key) from exc
        return CommandId(made.rpartition("/")[2])

    def keyed(self, key_hash: str) -> KeyedCommand | None:
        return read_record(self._calls, self._paths.key(key_hash), records.KEY)

    def outcome(self, command: CommandId, changed: Enqueue | None = None) -> CommandOutcome | None:
        """The outcome of a command; with a watch while there is none."""
        path = self._paths.outcome(command)
        outcome = read_record(self._calls, path, records.OUTCOME)
        if outcome is None and changed is not None and self._calls.exists(path, changed):
            return read_record(self._calls, path, records.OUTCOME)  # created between the two calls
        return outcome

    def refused_start(self, run: RunId) -> CommandOutcome | None:
        return newest_refusal(run, self.outcomes())

    def outcomes(self) -> tuple[CommandOutcome, ...]:
        return nodes.read_all(self._calls, self._paths.outcomes, records.OUTCOME)


def _runs(pid: int) -> bool:
    """True when a process of this host runs. A zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("latin-1")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZXx"


Info = TypeVar("Info", SchedulerInfo, WorkerInfo)


class TreeRegistrations:
    """See `nimbus.ports.Registrations`."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls = calls
        self._paths = Paths(root)
        self._published: set[str] = set()

    def publish_scheduler(self, info: SchedulerInfo) -> datetime | None:
        self._calls.ensure(self._paths.schedulers)
        path = self._paths.scheduler(info.id)

        def is_live(other: SchedulerInfo) -> bool:
            # On this host its process decides. A registration that has replaced ours is of a live process,
            # too: it may be in another container, with process numbers of its own.
            runs_here = other.pid != info.pid and _runs(other.pid)
            elsewhere = other.host != info.host or path in self._published
            return other.boot_id != info.boot_id and (runs_here or elsewhere)

        return self._publish(path, info, records.SCHEDULER, is_live, SchedulerIdInUseError)

    def publish_worker(self, info: WorkerInfo) -> datetime | None:
        self._calls.ensure(self._paths.orders(info.id))
        self._calls.ensure(self._paths.workers)

        def is_live(other: WorkerInfo) -> bool:
            return other.host != info.host  # on the same host the lock on the work folder decides

        return self._publish(self._paths.worker(info.id), info, records.WORKER, is_live, WorkerIdInUseError)

    def data_mark(self, mark: str) -> str:
        standing = self._calls.get(self._paths.data)
        if standing is None and mark:
            self._calls.ensure(self._paths.root)
            with suppress(NodeExistsError):  # another worker was faster
                self._calls.create(self._paths.data, mark.encode())
            standing = self._calls.get(self._paths.data)
        return (standing or b"").decode()

    def withdraw(self) -> None:
        """Delete the registrations of this object, if they still belong to our session."""
        for path in sorted(self._published):
            if self._calls.owner(path) == self._calls.session_id:
                self._calls.delete(path)
        self._published.clear()

    def _publish(
        self,
        path: str,
        info: Info,
        codec: records.Codec[Info],
        is_live: Callable[[Info], bool],
        in_use: Callable[[Any, str], Exception],
    ) -> datetime | None:
        """Write a registration. Raises the error `in_use` if there is one of another live process."""
        owner = self._calls.owner(path)
        if owner not in (None, self._calls.session_id):
            standing = self._calls.get(path)
            if standing is not None:
                try:
                    other = codec.decode(standing, path)
                except UnreadableRecordError as exc:  # perhaps of a newer version, but alive
                    raise in_use(info.id, f"an unknown host ({exc})") from exc
                if is_live(other):
                    raise in_use(info.id, other.hostname)
            self._calls.delete(path)  # of our earlier session, or of our predecessor
            owner = None
        data = codec.encode(info)
        try:
            if owner is None:
                self._calls.create(path, data, ephemeral=True)
            else:
                self._calls.set(path, data)
        except NodeExistsError:
            if self._calls.owner(path) != self._calls.session_id:  # another process with this id was faster
                return self._publish(path, info, codec, is_live, in_use)
            self._calls.set(path, data)  # our own create, its reply lost
        self._published.add(path)
        stat = self._calls.stat(path)
        return None if stat is None else stat.written_at


class TreeWholeState:
    """Reads that skip nothing: unlike `TreeClusterReader`, they raise for unreadable records.

    All raise StoreUnavailableError; those of pipelines and runs UnreadableRecordError, too.
    """

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls, self._paths = calls, Paths(root)

    def all_commands(self) -> tuple[QueuedCommand, ...]:
        """Waiting commands; an unreadable one, which will be refused, is `Unreadable`."""
        return nodes.queued_commands(self._paths, self._calls.records(self._paths.commands))

    def all_pipelines(self) -> tuple[PipelineRecord, ...]:
        return tuple(all_pipelines(self._calls, self._paths))

    def all_runs(self) -> tuple[Run, ...]:
        return tuple(all_runs(self._calls, self._paths))

    def dataset(self, name: DatasetName) -> Dataset | None:
        return read_record(self._calls, self._paths.dataset(name), datasets.CODEC)


class TreeAccess:
    """See `nimbus.ports.AccessStore`. One thread, except for the watches."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls, self._paths = calls, Paths(root)

    def settings(self, changed: Enqueue) -> ClusterSettings:
        """The settings, which contain tokens and grants, with a watch on their record."""
        self._calls.ensure(self._paths.settings)
        return nodes.read_settings(self._calls, self._paths, changed)

    def session_key(self) -> bytes:
        self._calls.ensure(self._paths.root)
        return read_secret(self._calls, self._paths.session_key)
