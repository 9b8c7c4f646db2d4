"""Brings attempts to their end on the board, when what held them does not.

The rule: a record that stands is believed; without one, whatever is left of the attempt is killed first, and
only then is it called lost. If nobody had claimed it, filling CLAIM ourselves makes sure that nobody will.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.slots import Claim, End, Holder
from nimbus.domain.task_run import Outcome
from nimbus.domain.workers import Assignment
from nimbus.ports import AttemptBoard, AttemptWithdrawnError
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.executor import Executor, Sight
from nimbus.worker.identity import host_id


def fence(board: AttemptBoard, end: End, worker: WorkerId, now: datetime) -> Claim | None:
    """Fill CLAIM so that no driver can start the attempt, and END with it, unless a driver has claimed it.

    Returns:
        Our fence, or a driver's claim; None when a leader closed the attempt or it is not known any more.
    """
    ours = Claim(
        attempt=end.attempt,
        fenced_by_epoch=0,
        worker=worker,
        host=host_id(),
        claimed_at=now,
        nonce=secrets.token_hex(8),
    )
    try:
        standing = board.refuse(ours, replace(end, nonce=ours.nonce))
    except AttemptWithdrawnError:
        return None
    if standing.is_fenced and (standing.fenced_by_epoch, standing.worker) != (0, worker):
        return None
    return standing


def refuse(
    board: AttemptBoard,
    order: Assignment,
    worker: WorkerId,
    reason: str,
    now: datetime,
    *,
    pipeline_at_fault: bool = False,
) -> None:
    """Say that an attempt cannot be started here: fence it, and end it as refused. Safe to repeat."""
    end = ended(order.attempt, Outcome.REFUSED, reason, now)
    fence(board, replace(end, pipeline_at_fault=pipeline_at_fault), worker, now)


def reap(board: AttemptBoard, order: Assignment, executors: Mapping[Holder, Executor]) -> bool:
    """Do a REAP order for an attempt that no executor here has launched.

    Returns:
        False while its holder lives: it will report by itself as soon as it reaches ZooKeeper. Look again
        later.
    """
    claim = _as_it_stands(order.claim, board)
    executor = executors[_holder_of(order) if claim is None else claim.holder]
    sight = executor.probe(order.attempt, claim)
    if sight is Sight.GONE:
        put_end(board, executor.reap(order.attempt, claim))
    return sight is not Sight.ALIVE  # elsewhere: the leader learns of it when the host is lost


def _holder_of(order: Assignment) -> Holder:
    """What holds an attempt that nothing has claimed, if anything does."""
    return Holder.APPLICATION if order.task.runs_in_cluster else Holder.PROCESS


def _as_it_stands(claim: Claim | None, board: AttemptBoard) -> Claim | None:
    """The claim of an order, with all that stands in it: a leader of an older release copies but a part."""
    standing = None if claim is None else board.read(AttemptId.parse(claim.attempt)).claim
    return standing if standing is not None and claim is not None and standing.nonce == claim.nonce else claim


def put_end(board: AttemptBoard, end: End) -> str:
    """Fill END; what became of that, for the folder."""
    try:
        standing = board.end(end)
    except AttemptWithdrawnError:
        return "nobody waits for it any more"
    return f"END says {standing.outcome} by {standing.written_by}"


def lost(attempt: str, claim: Claim | None, why: str, now: datetime, outcome: Outcome = Outcome.LOST) -> End:
    """The END of an attempt whose processes are gone without a record, with what its folder has here."""
    folder = AttemptFolder.of_claim(claim)
    return replace(
        ended(attempt, outcome, why, now),
        nonce=None if claim is None else claim.nonce,
        checkpoint=None if folder is None else folder.checkpoint(),
    )


def ended(attempt: str, outcome: Outcome, reason: str, now: datetime) -> End:
    """An END that a worker writes."""
    return End(attempt=attempt, outcome=outcome, written_by="worker", ended_at=now, reason=reason[:500])
