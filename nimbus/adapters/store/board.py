"""The attempt board of workers and runners: create-once slots, orders, and beats."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

import structlog
from kazoo.exceptions import NodeExistsError, NoNodeError

from nimbus import records
from nimbus.adapters.store.calls import (
    Build,
    Calls,
    StoreTransaction,
    check_size,
    read_secret,
    readable,
    readable_record,
)
from nimbus.adapters.store.paths import CHECKPOINT, CLAIM, END, HEARTBEAT, STOP, SUBMITTED, Paths
from nimbus.adapters.store.runs import completed_order, readable_runs
from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId, ClusterId, WorkerId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import LARGEST_PROGRESS, AttemptWithdrawnError, Enqueue
from nimbus.records import UnreadableRecordError

_log = structlog.get_logger(__name__)

UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
"""Time in records that cannot be read."""


def _nothing(_transaction: StoreTransaction) -> None:
    """Add nothing."""


def _exists(path: str) -> Build:
    return lambda transaction: transaction.check(path, -1)


class TreeAttemptBoard:
    """See `nimbus.ports.AttemptBoard`."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls = calls
        self._paths = Paths(root)
        self._decoded: dict[bytes, Assignment] = {}
        """The decoded orders of the last read."""

    def cluster(self) -> ClusterId:
        """Identified by the time and transaction in which the attempts' parent node was created.

        Not by addresses, which differ between hosts, and may change while a runner lives.
        """
        path = self._paths.attempts
        while (stat := self._calls.stat(path)) is None:
            self._calls.ensure(path)
        transaction, at_ms = stat.origin
        return ClusterId(f"{transaction:x}-{at_ms:x}")

    def claim(self, claim: Claim) -> Claim:
        return self._fill_claim(claim, _nothing)

    def fill(self, filled: Sequence[Claim | End]) -> Sequence[Claim | End | None]:
        """Fill several slots in one transaction; if it is refused, one after the other."""

        def build(transaction: StoreTransaction) -> None:
            for record in filled:
                self._add(transaction, record)

        try:
            self._calls.transact(f"create {len(filled)} slots", build)
        except (NodeExistsError, NoNodeError):
            return [self._fill_one(record) for record in filled]
        return list(filled)

    def _add(self, transaction: StoreTransaction, record: Claim | End) -> None:
        attempt = AttemptId.parse(record.attempt)
        if isinstance(record, End):
            if record.nonce is not None:
                transaction.check(self._paths.nonce(attempt, record.nonce), -1)
            transaction.create(self._paths.end(attempt), records.END.encode(record))
            return
        if record.nonce is not None:
            transaction.create(self._paths.nonce(attempt, record.nonce), b"")
        transaction.create(self._paths.claim(attempt), records.CLAIM.encode(record))
        transaction.create(self._paths.heartbeat(attempt), _heartbeat({}), ephemeral=True)

    def _fill_one(self, record: Claim | End) -> Claim | End | None:
        try:
            if isinstance(record, End):
                return self.end(record)
            standing = self.claim(record)
            if standing.nonce == record.nonce:
                self.heartbeat(AttemptId.parse(record.attempt), {})
        except AttemptWithdrawnError:
            return None
        return standing

    def refuse(self, claim: Claim, end: End) -> Claim:
        path, data = self._paths.end(AttemptId.parse(end.attempt)), records.END.encode(end)
        check_size(path, len(data))
        return self._fill_claim(claim, lambda transaction: transaction.create(path, data))

    def end(self, end: End) -> End:
        """Fill END, or return the existing one.

        A version cannot show that a node was removed and created again. So the transaction that fills END
        checks that the node with the claim's nonce in its name exists.
        """
        attempt = AttemptId.parse(end.attempt)
        path = self._paths.end(attempt)
        check = _nothing if end.nonce is None else _exists(self._paths.nonce(attempt, end.nonce))
        return _end(self._fill(path, records.END.encode(end), attempt, check), attempt, path)

    def _fill_claim(self, claim: Claim, beside: Build) -> Claim:
        attempt = AttemptId.parse(claim.attempt)
        path = self._paths.claim(attempt)

        def with_nonce(transaction: StoreTransaction) -> None:
            beside(transaction)
            if claim.nonce is not None:
                transaction.create(self._paths.nonce(attempt, claim.nonce), b"")

        return _claim(self._fill(path, records.CLAIM.encode(claim), attempt, with_nonce), attempt, path)

    def _fill(self, path: str, data: bytes, attempt: AttemptId, beside: Build) -> bytes:
        """Create a slot once, with the operations that `beside` adds.

        After a lost reply the second try finds the node of the first one, so the node is always read.
        """

        def build(transaction: StoreTransaction) -> None:
            beside(transaction)
            transaction.create(path, data)

        check_size(path, len(data))
        try:
            self._calls.transact(f"create {path}", build)
        except NodeExistsError:
            standing = self._calls.get(path)
            if standing is None:  # removed between the two calls, because the run is over
                raise AttemptWithdrawnError(str(attempt)) from None
            return standing
        except NoNodeError as exc:
            raise AttemptWithdrawnError(str(attempt)) from exc
        return data

    def read(self, attempt: AttemptId, changed: Enqueue | None = None) -> Slots:
        return self.read_all({attempt: changed})[attempt]

    def read_all(self, attempts: Mapping[AttemptId, Enqueue | None]) -> Mapping[AttemptId, Slots]:
        return read_slots(self._calls, self._paths, attempts)

    def heartbeat(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Write the runner's ephemeral node; replaces one of our older session."""
        path = self._paths.heartbeat(attempt)
        data = _heartbeat(progress)
        if len(data) > LARGEST_PROGRESS:
            _log.warning("progress_too_large", attempt=str(attempt), size_bytes=len(data))
            data = _heartbeat({})
        owner = self._calls.owner(path)
        if owner == self._calls.session_id and self._calls.set(path, data):
            return
        if owner is not None:
            self._calls.delete(path)
        try:
            self._calls.create(path, data, ephemeral=True)
        except NoNodeError as exc:
            raise AttemptWithdrawnError(str(attempt)) from exc
        except NodeExistsError:  # our own create, its reply lost
            self._calls.set(path, data)

    def keep_checkpoint(self, attempt: AttemptId, nonce: str, checkpoint: str) -> None:
        """Write it in a transaction that fails if END exists, because it creates END and removes it again.

        So each checkpoint also fires the watch of the attempt; the extra read finds no change.
        """
        path, end = self._paths.checkpoint(attempt), self._paths.end(attempt)
        data = json.dumps({"schema": records.SCHEMA, "checkpoint": checkpoint}).encode()

        def build(write: str, transaction: StoreTransaction) -> None:
            transaction.check(self._paths.nonce(attempt, nonce), -1)
            transaction.create(end, b"")
            transaction.delete(end)
            getattr(transaction, write)(path, data)

        try:
            try:
                self._calls.transact(f"write {path}", partial(build, "set_data"))
            except NoNodeError:  # the first checkpoint, or the claim does not exist
                self._calls.transact(f"create {path}", partial(build, "create"))
        except (NoNodeError, NodeExistsError) as exc:
            raise AttemptWithdrawnError(str(attempt)) from exc

    def note_submitted(self, attempt: AttemptId, driver: ClusterDriver) -> datetime:
        """Create the mark, unless it exists; return ZooKeeper's creation time."""
        path = self._paths.submitted(attempt, driver)
        try:
            with suppress(NodeExistsError):
                self._calls.create(path, b"")
        except NoNodeError as exc:
            raise AttemptWithdrawnError(str(attempt)) from exc
        if (stat := self._calls.stat(path)) is None:
            raise AttemptWithdrawnError(str(attempt))
        return datetime.fromtimestamp(stat.origin[1] / 1000, UTC)

    def report(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Write into the heartbeat, which still belongs to its own session."""
        data = _heartbeat(progress)
        if len(data) <= LARGEST_PROGRESS:
            self._calls.set(self._paths.heartbeat(attempt), data)

    def attempt_key(self) -> bytes:
        return read_secret(self._calls, self._paths.attempt_key)

    def assignments(self, worker: WorkerId, changed: Enqueue | None = None) -> tuple[Assignment, ...]:
        parent = self._paths.orders(worker)
        names = self._calls.children(parent, changed)
        if names is None:
            self._calls.ensure(parent)
            names = self._calls.children(parent, changed) or ()
        nodes = self._calls.read_all(parent, names)
        fresh = [(name, data) for name, data in nodes if data not in self._decoded]
        known = {**self._decoded, **dict(self._orders(fresh, parent))}
        self._decoded = {data: known[data] for _, data in nodes if data in known}
        return tuple(self._decoded.values())

    def _orders(self, nodes: Iterable[tuple[str, bytes]], parent: str) -> Iterator[tuple[bytes, Assignment]]:
        for name, data in nodes:
            for order in readable(records.ASSIGNMENT, [(name, data)], parent):
                if not order.needs_in_run:
                    yield data, order
                    continue
                for run in readable_runs(self._calls, self._paths, [order.run]):
                    yield data, completed_order(order, run)


def _heartbeat(progress: Mapping[str, object]) -> bytes:
    return json.dumps({"schema": records.SCHEMA, "progress": dict(progress)}).encode()


def read_slots(
    calls: Calls, paths: Paths, changed: Mapping[AttemptId, Enqueue | None], *, progress: bool = True
) -> Mapping[AttemptId, Slots]:
    """Read the slots of some attempts together; a missing attempt has empty slots.

    `changed` has a callback for the next change of each attempt. `progress`: also read progress and
    checkpoints; the leader does not need them, only the heartbeats.
    """
    parents = [paths.attempt(attempt) for attempt in changed]
    read = (CLAIM, END, HEARTBEAT) if progress else (CLAIM, END)
    nodes = [f"{parent}/{name}" for parent in parents for name in read]
    names, data = calls.list_and_read(parents, changed.values(), nodes)
    slots = dict(zip(nodes, data, strict=True))
    there = {attempt: some or () for attempt, some in zip(changed, names, strict=True)}
    if kept := [
        paths.checkpoint(attempt) for attempt in changed if progress and CHECKPOINT in there[attempt]
    ]:
        slots |= dict(zip(kept, calls.list_and_read((), (), kept)[1], strict=True))
    return {
        attempt: _slots(attempt, there[attempt], slots, parent)
        for attempt, parent in zip(changed, parents, strict=True)
    }


def read_ends(calls: Calls, paths: Paths, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
    """Read CLAIM and END of the ended ones of some attempts, in one request if they are few."""
    parents = {attempt: paths.attempt(attempt) for attempt in attempts}
    nodes = [f"{parent}/{name}" for parent in parents.values() for name in (CLAIM, END)]
    _, data = calls.list_and_read((), (), nodes)
    ends = dict(zip(nodes, data, strict=True))
    ended = ((attempt, parent) for attempt, parent in parents.items() if ends[f"{parent}/{END}"] is not None)
    return {attempt: _slots(attempt, (), ends, parent) for attempt, parent in ended}


def _slots(
    attempt: AttemptId, there: Collection[str], nodes: Mapping[str, bytes | None], parent: str
) -> Slots:
    claim, end, beat, kept = (f"{parent}/{name}" for name in (CLAIM, END, HEARTBEAT, CHECKPOINT))
    progress = _field("progress", nodes.get(beat), beat)
    checkpoint = _field("checkpoint", nodes.get(kept), kept)
    return Slots(
        claim=None if (data := nodes[claim]) is None else _claim(data, attempt, claim),
        end=None if (data := nodes[end]) is None else _end(data, attempt, end),
        has_heartbeat=HEARTBEAT in there,
        stop_requested=STOP in there,
        submitted=next((_submitted(name) for name in there if name.startswith(SUBMITTED)), None),
        progress=progress if isinstance(progress, dict) else {},
        checkpoint=None if checkpoint is None else str(checkpoint),
    )


def _submitted(name: str) -> ClusterDriver:
    target, _, driver = name.removeprefix(SUBMITTED).partition(":")
    return ClusterDriver(target=target, id=unquote(driver))


def _claim(data: bytes, attempt: AttemptId, place: str) -> Claim:
    """Decode a claim. An unreadable claim counts as that of a driver on an unknown host."""
    claim = readable_record(records.CLAIM, data, place)
    return claim or Claim(attempt=str(attempt), claimed_at=UNKNOWN_TIME)


def _end(data: bytes, attempt: AttemptId, place: str) -> End:
    """Decode an END. An unreadable END is still filled: its attempt has failed, and cannot commit."""
    try:
        return records.END.decode(data, place)
    except UnreadableRecordError as exc:
        _log.error("record_unreadable", place=exc.place, error=str(exc))
        return End(
            attempt=str(attempt),
            outcome=Outcome.FAILED,
            written_by="unknown",
            ended_at=datetime.now(UTC),
            reason=str(exc),
        )


def _field(name: str, data: bytes | None, place: str) -> Any:
    """The field of a JSON document; None if there is no document, or if it is unreadable, which is logged."""
    if data is None:
        return None
    try:
        return json.loads(data)[name]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        _log.error("record_unreadable", place=place, error=str(exc))
        return None
