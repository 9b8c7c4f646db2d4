"""Ends attempts on the board if their holder cannot.

An existing exit record decides. Without one, the remaining processes of the attempt are killed first, and
only then END says "lost". If the attempt has no CLAIM, we fill it, so that no driver can claim it later.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import WorkerId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard, AttemptWithdrawnError
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host.identity import host_id


def fence(board: AttemptBoard, end: End, worker: WorkerId, now: datetime) -> Claim | None:
    """Fill CLAIM, and END with it, unless a driver has claimed it; return our fence, or a driver's claim.

    None: a leader closed the attempt, or it does not exist any more.
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
    """Refuse an attempt that cannot be started here: fence it, and end it as refused. Safe to repeat."""
    end = ended(order.attempt, Outcome.REFUSED, reason, now)
    fence(board, replace(end, pipeline_at_fault=pipeline_at_fault), worker, now)


def put_end(board: AttemptBoard, end: End) -> str:
    """Fill END; return the result as text for the folder."""
    try:
        standing = board.end(end)
    except AttemptWithdrawnError:
        return "nobody waits for it any more"
    return f"END says {standing.outcome} by {standing.written_by}"


def lost(attempt: str, claim: Claim | None, why: str, now: datetime, outcome: Outcome = Outcome.LOST) -> End:
    """The END of an attempt whose processes ended without a record, with data from its folder."""
    folder = AttemptFolder.of_claim(claim)
    return replace(
        ended(attempt, outcome, why, now),
        nonce=None if claim is None else claim.nonce,
        checkpoint=None if folder is None else folder.checkpoint(),
    )


def ended(attempt: str, outcome: Outcome, reason: str, now: datetime) -> End:
    """An END written by a worker."""
    return End(attempt=attempt, outcome=outcome, written_by="worker", ended_at=now, reason=reason[:500])
