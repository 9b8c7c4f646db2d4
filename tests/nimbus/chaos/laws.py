"""Checks the laws of leadership on ZooKeeper's committed transactions. Pure.

Only the session that the epoch was raised for last may write the leader's data, and every such write is a
transaction that begins with a check of the epoch. The epoch names the latch that it was raised for: the
writer's own, or, when a leader steps down, that of its successor. A committed write that breaks this is an
accepted write of a zombie.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.nimbus.chaos.txnlog import Operation, Transaction

CHANGES = ("create", "setData", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRaised:
    """A session raised the epoch to lead. Its guard may still refuse."""

    zxid: int
    session: int
    """The latch that it was raised for."""
    time_ms: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderNamed:
    """The node `leader` was written: a confirmed leadership."""

    zxid: int
    session: int
    time_ms: int
    id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A committed write that its session was not allowed to make."""

    zxid: int
    session: int
    holder: int | None
    """The session that the epoch was raised for last; None: it was never raised."""
    path: str
    why: str

    def __str__(self) -> str:
        holder = "nobody" if self.holder is None else f"{self.holder:#x}"
        who = f"by session {self.session:#x}, epoch held by {holder}"
        return f"zxid {self.zxid:#x}: {self.path} {who}: {self.why}"


@dataclass(slots=True)
class Ledger:
    """The history of leadership from the log."""

    raised: list[EpochRaised] = field(default_factory=list)
    named: list[LeaderNamed] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    leader_writes: int = 0
    """Committed changes that only a leader may make."""
    fenced_off: int = 0
    """Transactions of zombies, which ZooKeeper refused because the epoch was over."""


def audit(transactions: Iterable[Transaction], root: str) -> Ledger:
    """Check the whole log.

    Args:
        transactions: All of them, oldest first, from the first epoch on.
        root: Path of the cluster, such as `/nimbus`.
    """
    ledger = Ledger()
    holder: int | None = None
    latches: dict[str, int] = {}
    for each in transactions:
        if not each.is_committed:
            ledger.fenced_off += each.is_fenced_off
            continue
        fenced = bool(each.operations) and _checks_epoch(each.operations[0], root)
        for operation in each.operations:
            if operation.kind == "create" and operation.path.startswith(f"{root}/leader-lock/"):
                latches[operation.path.rpartition("/")[2]] = each.session
            if operation.kind == "setData" and operation.path == f"{root}/epoch":
                ledger.raised.append(_raised(each, operation, latches))
                holder = ledger.raised[-1].session
            if not is_leaders_write(operation, root):
                continue
            ledger.leader_writes += 1
            if each.session != holder:
                ledger.violations.append(_violation(each, operation, holder, "another session leads"))
            elif not fenced:
                ledger.violations.append(_violation(each, operation, holder, "no check of the epoch"))
        ledger.named += _named(each, root)
    return ledger


def is_leaders_write(operation: Operation, root: str) -> bool:
    """Whether only a leader may make this change.

    Any process may create parents (`/runs`, `/assignments/<worker>`), so they do not count. Any process may
    queue commands, which the leader takes. Runners and workers fill slots, too.
    """
    if operation.kind not in CHANGES or not operation.path.startswith(f"{root}/"):
        return False
    match operation.path.removeprefix(f"{root}/").split("/"):
        case ["leader"]:
            return operation.kind != "delete"  # a resigning leader deletes it; its absence does no harm
        case ["runs" | "pipelines" | "outcomes", _] | ["runs", _, _]:
            return True
        case ["abdication"]:
            return operation.kind != "create"  # any process may create it empty
        case ["assignments", _, _] | ["attempts", _]:
            return True
        case ["commands", _]:
            return operation.kind == "delete"
        case ["attempts", _, slot]:
            return _is_leaders_slot_write(slot, operation)
        case _:
            return False


def _is_leaders_slot_write(slot: str, operation: Operation) -> bool:
    if slot == "beat":
        return False
    if slot == "stop" or operation.kind != "create":
        return True
    if slot.startswith("claim-"):
        return False
    document = json.loads(operation.data)
    if slot == "claim":
        return bool(document.get("fenced_by_epoch"))  # 0: a worker fenced an attempt that it could not start
    return bool(document.get("written_by") == "leader")


def ends(transactions: Iterable[Transaction], root: str) -> Mapping[str, Mapping[str, Any]]:
    """The committed END of each attempt. Shape `{attempt id: document}`."""
    return {attempt: json.loads(data) for attempt, data in _filled(transactions, root, "end")}


def _filled(transactions: Iterable[Transaction], root: str, slot: str) -> Iterator[tuple[str, bytes]]:
    for each in transactions:
        if not each.is_committed:
            continue
        for operation in each.operations:
            if operation.kind == "create" and operation.path.startswith(f"{root}/attempts/"):
                match operation.path.removeprefix(f"{root}/attempts/").split("/"):
                    case [attempt, name] if name == slot:
                        yield attempt, operation.data


def _checks_epoch(operation: Operation, root: str) -> bool:
    return operation.kind == "check" and operation.path == f"{root}/epoch"


def _raised(each: Transaction, operation: Operation, latches: Mapping[str, int]) -> EpochRaised:
    document = json.loads(operation.data)
    session = latches.get(document.get("latch", ""), each.session)
    return EpochRaised(zxid=each.zxid, session=session, time_ms=each.time_ms, epoch=int(document["epoch"]))


def _named(each: Transaction, root: str) -> Iterator[LeaderNamed]:
    for operation in each.operations:
        if operation.kind in ("create", "setData") and operation.path == f"{root}/leader":
            found = json.loads(operation.data)
            yield LeaderNamed(
                zxid=each.zxid,
                session=each.session,
                time_ms=each.time_ms,
                id=str(found["id"]),
                epoch=int(found["epoch"]),
            )


def _violation(each: Transaction, operation: Operation, holder: int | None, why: str) -> Violation:
    return Violation(zxid=each.zxid, session=each.session, holder=holder, path=operation.path, why=why)
