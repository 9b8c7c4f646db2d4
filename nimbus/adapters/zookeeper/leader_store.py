"""What the leader reads and writes: one fenced transaction for each decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from nimbus.adapters.zookeeper.run_size import check_growth
from nimbus.domain import writes as w
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import Abdication, QueuedCommand, Unreadable
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId
from nimbus.domain.run import Run
from nimbus.domain.slots import Slots
from nimbus.domain.workers import WorkerInfo
from nimbus.ports import Enqueue, FencedOutError, SlotTakenError, Snapshot, StaleStateError
from nimbus.records import UnreadableRecordError

_log = structlog.get_logger(__name__)

Operation = tuple[str, str, bytes]
"""`create`, `set` or `delete`; path; data (empty for `delete`)."""


OVERHEAD = 100
"""Bytes of one operation beside path and data (at most: lengths, version, access list)."""
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
        runs = {run.id: run for run in _readable(self._calls, self._paths.runs, records.RUN)}
        pipelines = {p.name: p for p in _readable(self._calls, self._paths.pipelines, records.PIPELINE)}
        return Snapshot(
            pipelines=pipelines,
            runs=runs,
            commands=self.read_commands(),
            workers=self.read_workers(),
            slots={
                attempt: self.read_slots(attempt) for run in runs.values() for attempt in run.open_attempts()
            },
            abdication=self._read_abdication(),
        )

    def read_commands(self) -> tuple[QueuedCommand, ...]:
        """Commands that wait, oldest first."""
        return read_commands(self._calls, self._paths, self._on_commands, most=MOST_COMMANDS)

    def _read_abdication(self) -> Abdication | None:
        data = self._calls.get(self._paths.abdication)
        found = [("abdication", data)] if data else []
        return next(readable(records.ABDICATION, found, self._paths.root), None)

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        return tuple(_readable(self._calls, self._paths.workers, records.WORKER, self._on_workers))

    def read_slots(self, attempt: AttemptId) -> Slots:
        """What there is of one attempt."""
        return read_slots(self._calls, self._paths, attempt, _Tell(self._on_attempt, attempt))

    def prune_outcomes(self, before: datetime) -> None:
        """Forget the oldest outcomes, at most MOST_PRUNED at once; one that cannot be read stays."""
        oldest = _readable(self._calls, self._paths.outcomes, records.OUTCOME, most=MOST_PRUNED)
        gone = [outcome.command for outcome in oldest if outcome.decided_at < before]
        if gone:
            try:
                self._write([("delete", self._paths.outcome(command), b"") for command in gone])
            except StaleStateError as exc:  # somebody else deleted one: the next time finds the rest
                _log.info("outcomes_not_pruned", error=str(exc))

    def commit(self, writes: Sequence[w.Write]) -> None:
        """All of `writes` or none, if the epoch is still ours."""
        self._write([operation for write in writes for operation in self._operations(write)])

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
        check_size(what, sum(len(path) + len(data) + OVERHEAD for _, path, data in operations))
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
                check_growth(run)
                yield "create", paths.run(run.id), records.RUN.encode(run)
            case w.PutRun(run):
                yield "set", paths.run(run.id), records.RUN.encode(run)
            case w.RemoveRun(run_id):
                yield "delete", paths.run(run_id), b""
            case w.CreatePipeline(record):
                yield "create", paths.pipeline(record.name), records.PIPELINE.encode(record)
            case w.PutPipeline(record):
                yield "set", paths.pipeline(record.name), records.PIPELINE.encode(record)
            case w.RemovePipelineRecord(name):
                yield "delete", paths.pipeline(name), b""
            case w.ConsumeCommand(outcome):
                yield "delete", paths.command(outcome.command), b""
                yield "create", paths.outcome(outcome.command), records.OUTCOME.encode(outcome)
            case w.PutAbdication(abdication):
                yield "set", paths.abdication, records.ABDICATION.encode(abdication)
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
                yield "create", paths.attempt(attempt), b""
            case w.RemoveAttempt(attempt):
                parent = paths.attempt(attempt)
                names = self._calls.children(parent)
                if names is not None:
                    yield from (("delete", f"{parent}/{name}", b"") for name in names)
                    yield "delete", parent, b""
            case w.Assign(worker, assignment):
                path = paths.order(worker, AttemptId.parse(assignment.attempt))
                yield "create", path, records.ASSIGNMENT.encode(assignment)
            case w.Unassign(worker, attempt):
                yield "delete", paths.order(worker, attempt), b""
            case w.WriteClaim(attempt, claim):
                yield "create", paths.claim(attempt), records.CLAIM.encode(claim)
            case w.WriteEnd(attempt, end):
                yield "create", paths.end(attempt), records.END.encode(end)
            case w.RequestStop(attempt, reason):
                yield "create", paths.stop(attempt), reason.encode()
            case _:
                assert_never(write)


def _readable(
    calls: Calls,
    parent: str,
    codec: records.RecordCodec[records.T],
    changed: Enqueue | None = None,
    *,
    most: int | None = None,
) -> Iterator[records.T]:
    """All records below `parent`; a broken one harms only itself: it is reported and left out."""
    yield from readable(codec, calls.records(parent, changed, most=most), parent)


def read_commands(
    calls: Calls, paths: Paths, changed: Enqueue | None = None, *, most: int | None = None
) -> tuple[QueuedCommand, ...]:
    """Waiting commands in the order of their numbers, also those that cannot be read."""
    found = calls.records(paths.commands, changed, most=most)
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


def read_runs(calls: Calls, paths: Paths) -> tuple[Run, ...]:
    """All runs in ZooKeeper, newest first."""
    runs = list(_readable(calls, paths.runs, records.RUN))
    return tuple(sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True))


def read_run(calls: Calls, paths: Paths, run: RunId) -> Run | None:
    """One run in ZooKeeper."""
    data = calls.get(paths.run(run))
    return None if data is None else records.RUN.decode(data, paths.run(run))


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


def read_all(calls: Calls, parent: str, codec: records.RecordCodec[records.T]) -> tuple[records.T, ...]:
    """All readable records below `parent`."""
    return tuple(_readable(calls, parent, codec))
