"""What the leader reads and writes: one fenced transaction for each decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

import structlog
from kazoo.exceptions import NodeExistsError

from leader import FencedOutError as ElectionFencedOutError
from leader import FencingToken, TransactionRefusedError, ZooKeeperSession, fenced_transaction
from nimbus import records
from nimbus.adapters.zookeeper.board import UNKNOWN_TIME, read_slots
from nimbus.adapters.zookeeper.calls import Calls, check_size, in_our_words, readable
from nimbus.adapters.zookeeper.paths import Paths
from nimbus.adapters.zookeeper.runs import change, creation, readable_runs, removal
from nimbus.adapters.zookeeper.transaction import Operation, ZooKeeperTransaction, size_bytes
from nimbus.domain import writes as w
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import Abdication, QueuedCommand, Unreadable
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId
from nimbus.domain.run import Run
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.slots import Slots
from nimbus.domain.workers import WorkerInfo
from nimbus.ports import Enqueue, FencedOutError, SlotTakenError, Snapshot, StaleStateError
from nimbus.records import UnreadableRecordError

_log = structlog.get_logger(__name__)


MOST_COMMANDS = 200
"""Commands that are read at once, the oldest; the others come when these are gone."""

MOST_PRUNED = 500
"""Outcomes that are looked at in one go: the reads take milliseconds, the deletions are one transaction."""


def _nobody() -> None:
    """Nobody to wake."""


@dataclass(frozen=True, slots=True)
class _Tell:
    """Says that an attempt changed; equal for equal attempts, see `calls`."""

    whom: Callable[[AttemptId], None]
    attempt: AttemptId

    def __call__(self) -> None:
        self.whom(self.attempt)


class ZooKeeperLeaderStore:
    """See `nimbus.ports.LeaderStore`. Engine thread only, but for the watches, which only enqueue."""

    def __init__(self, session: ZooKeeperSession, root: str, token: FencingToken) -> None:
        self._calls = Calls(session)
        self._paths = Paths(root)
        self._token = token
        self._on_commands: Enqueue = _nobody
        self._on_workers: Enqueue = _nobody
        self._on_attempt: Callable[[AttemptId], None] = lambda _attempt: None

    def subscribe(self, *, commands: Enqueue, workers: Enqueue, attempt: Callable[[AttemptId], None]) -> None:
        """Say whom to wake."""
        self._on_commands, self._on_workers, self._on_attempt = commands, workers, attempt

    def load(self) -> Snapshot:
        """Read everything, and arm all watches."""
        for path in self._paths.always():
            self._calls.ensure(path)
        runs = {run.id: run for run in readable_runs(self._calls, self._paths)}
        pipelines = {p.name: p for p in _readable(self._calls, self._paths.pipelines, records.PIPELINE)}
        return Snapshot(
            pipelines=pipelines,
            runs=runs,
            commands=self.read_commands((), MOST_COMMANDS),
            workers=self.read_workers(),
            slots=self.read_slots([attempt for run in runs.values() for attempt in run.open_attempts()]),
            schedulers=self.read_schedulers(),
            abdication=self._read_abdication(),
        )

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        """Commands that wait and are not `known`, oldest first."""
        names = self._calls.children(self._paths.commands, self._on_commands) or ()
        new = [name for name in names if name not in known][:most]
        return queued_commands(self._paths, self._calls.read_all(self._paths.commands, new))

    def _read_abdication(self) -> Abdication | None:
        data = self._calls.get(self._paths.abdication)
        found = [("abdication", data)] if data else []
        return next(readable(records.ABDICATION, found, self._paths.root), None)

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        return tuple(_readable(self._calls, self._paths.workers, records.WORKER, self._on_workers))

    def read_schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""
        return tuple(_readable(self._calls, self._paths.schedulers, records.SCHEDULER))

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """What there is of some attempts."""
        changed = {attempt: _Tell(self._on_attempt, attempt) for attempt in attempts}
        return read_slots(self._calls, self._paths, changed, progress=False)

    def read_run(self, run: RunId) -> Run | None:
        """One run."""
        return next(readable_runs(self._calls, self._paths, [run]), None)

    def read_pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline."""
        found = self._calls.read_all(self._paths.pipelines, [name])
        return next(readable(records.PIPELINE, found, self._paths.pipelines), None)

    def prune_outcomes(self, before: datetime) -> None:
        """Forget the oldest outcomes, at most MOST_PRUNED at once; one that cannot be read stays."""
        oldest = _readable(self._calls, self._paths.outcomes, records.OUTCOME, most=MOST_PRUNED)
        gone = [outcome.command for outcome in oldest if outcome.decided_at < before]
        if gone:
            try:
                self._write([Operation("delete", self._paths.outcome(command)) for command in gone])
            except StaleStateError as exc:  # somebody else deleted one: the next time finds the rest
                _log.info("outcomes_not_pruned", error=str(exc))

    def begin(self) -> ZooKeeperTransaction:
        """Begin to collect writes."""
        return ZooKeeperTransaction(self._write, self._operations)

    def _write(self, operations: Sequence[Operation]) -> None:
        def build(transaction: object) -> None:
            for kind, path, data in operations:
                match kind:
                    case "create":
                        transaction.create(path, data)  # type: ignore[attr-defined]  # kazoo has no types
                    case "set":
                        transaction.set_data(path, data)  # type: ignore[attr-defined]
                    case _:
                        transaction.delete(path)  # type: ignore[attr-defined]

        what = ", ".join(path for _, path, _ in operations)
        check_size(what, size_bytes(operations))
        with in_our_words(f"write {what}"):
            try:
                fenced_transaction(self._calls.session, self._token, build)
            except ElectionFencedOutError as exc:
                raise FencedOutError(str(exc)) from exc
            except TransactionRefusedError as exc:
                kind, path, _ = operations[exc.index]
                if isinstance(exc.__cause__, NodeExistsError):
                    raise SlotTakenError(path) from exc
                raise StaleStateError(f"{kind} {path}: {exc}") from exc

    def _operations(self, write: w.Write) -> Iterator[Operation]:
        paths = self._paths
        match write:
            case w.CreateRun(run):
                yield from creation(paths, run)
            case w.PutRun(run, before):
                yield from change(paths, run, before)
            case w.RemoveRun(run_id):
                yield from removal(self._calls, paths, run_id)
            case w.CreatePipeline(record):
                yield Operation("create", paths.pipeline(record.name), records.PIPELINE.encode(record))
            case w.PutPipeline(record):
                yield Operation("set", paths.pipeline(record.name), records.PIPELINE.encode(record))
            case w.RemovePipelineRecord(name):
                yield Operation("delete", paths.pipeline(name))
            case w.ConsumeCommand(outcome):
                yield Operation("delete", paths.command(outcome.command))
                yield Operation("create", paths.outcome(outcome.command), records.OUTCOME.encode(outcome))
            case w.PutAbdication(abdication):
                yield Operation("set", paths.abdication, records.ABDICATION.encode(abdication))
            case _:
                yield from self._attempt_operations(write)

    def _attempt_operations(
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
                yield Operation("create", path, records.ASSIGNMENT.encode(assignment))
            case w.Unassign(worker, attempt):
                yield Operation("delete", paths.order(worker, attempt))
            case w.WriteClaim(attempt, claim):
                yield Operation("create", paths.claim(attempt), records.CLAIM.encode(claim))
            case w.WriteEnd(attempt, end):
                yield Operation("create", paths.end(attempt), records.END.encode(end))
            case w.RequestStop(attempt, reason):
                yield Operation("create", paths.stop(attempt), reason.encode())
            case _:
                assert_never(write)


def _readable(
    calls: Calls,
    parent: str,
    codec: records.Codec[records.T],
    changed: Enqueue | None = None,
    *,
    most: int | None = None,
) -> Iterator[records.T]:
    """All records below `parent`; a broken one harms only itself: it is reported and left out."""
    yield from readable(codec, calls.records(parent, changed, most=most), parent)


def read_commands(calls: Calls, paths: Paths) -> tuple[QueuedCommand, ...]:
    """Waiting commands in the order of their numbers, also those that cannot be read."""
    return queued_commands(paths, calls.records(paths.commands))


def queued_commands(paths: Paths, found: Iterable[tuple[str, bytes]]) -> tuple[QueuedCommand, ...]:
    """Commands from their nodes, also those that cannot be read."""
    return tuple(_queued(CommandId(name), data, f"{paths.commands}/{name}") for name, data in found)


def _queued(command: CommandId, data: bytes, place: str) -> QueuedCommand:
    try:
        body = records.COMMAND.decode(data, place)
        submitted_at = datetime.fromisoformat(body.submitted_at)
    except (UnreadableRecordError, ValueError) as exc:
        return QueuedCommand(id=command, command=Unreadable(reason=str(exc)), submitted_at=UNKNOWN_TIME)
    return QueuedCommand(
        id=command, command=body.command, submitted_at=submitted_at, submitted_by=body.submitted_by
    )


def read_pipelines(calls: Calls, paths: Paths, changed: Enqueue | None = None) -> tuple[PipelineRecord, ...]:
    """The catalog; `changed` is called once, when a pipeline comes, goes or changes."""
    found = []
    for name in calls.children(paths.pipelines, changed) or ():
        path = paths.pipeline(PipelineName(name))
        data = calls.get(path, changed)
        if data is None:
            continue
        try:
            found.append(records.PIPELINE.decode(data, path))
        except UnreadableRecordError as exc:
            _log.error("record_unreadable", place=exc.place, error=str(exc))
    return tuple(found)


def read_all(calls: Calls, parent: str, codec: records.Codec[records.T]) -> tuple[records.T, ...]:
    """All readable records below `parent`."""
    return tuple(_readable(calls, parent, codec))
