"""Determines how an attempt with a dead runner ended: from its folder, slots and /proc. Worker thread."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog

from nimbus.domain.ids import WorkerId
from nimbus.domain.slots import Claim, End
from nimbus.domain.task_run import Outcome
from nimbus.ports import AttemptBoard
from nimbus.records import UnreadableRecordError
from nimbus.worker import procfs, remains, settlement
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.attempt_session import release_left
from nimbus.worker.connect_plan import ConnectReach
from nimbus.worker.files import read_if_there
from nimbus.worker.procfs import ProcessId
from nimbus.worker.tags import attempt_tag

_log = structlog.get_logger(__name__)


def ending_of_the_dead(
    folder: AttemptFolder,
    board: AttemptBoard,
    worker: WorkerId,
    now: datetime,
    connect: ConnectReach | None = None,
) -> End | None:
    """Determine and record how an attempt ended whose runner died without an exit record.

    Args:
        folder: The attempt's folder at this worker; its lock is free.
        board: The board with its CLAIM.
        worker: This worker's id.
        now: The time for the record.
        connect: The worker's provider for tasks in `mode: connect`.

    Returns:
        The exit record now; None if this worker must not end the attempt.

    Raises:
        StoreUnavailableError: try again; nothing was recorded.
    """
    attempt = str(folder.attempt)
    runner = folder.last_runner()
    if runner is not None:  # also while ZooKeeper is away, and with it the attempt's tag
        remains.kill_session(runner)
    if (keeper := folder.keeper()) is not None:
        remains.kill_keeper(keeper)
    remains.kill_tagged(attempt_tag(board.cluster(), attempt))
    release_left(folder.session(), folder.path, connect)
    why = f"its runner ended before it could claim the attempt: {_last_words(folder)}"
    refused = settlement.ended(attempt, Outcome.REFUSED, why, now)
    won = settlement.fence(board, refused, worker, now)
    if won is None:
        return None
    if not won.is_fenced and won.worker != worker:
        return None
    if won.is_fenced:
        return folder.record_exit(replace(refused, nonce=won.nonce))
    lost = settlement.lost(attempt, won, "its runner died without a word", now)
    return folder.record_exit(replace(lost, application=folder.application()))


def is_supervised(tag: str, claim: Claim | None) -> bool:
    """True if a runner of the attempt is alive on this host, of any worker of its cluster.

    Before its claim the tag identifies it; after that the record in the claim's folder does. A driver that
    another user runs counts as supervised, because this cannot be checked.
    """
    if remains.runners(tag):
        return True
    runner = _runner_of(claim)
    if runner is not None and procfs.is_alive(runner.pid, runner.start_ticks):
        return True
    if claim is None or claim.pid is None or claim.start_ticks is None:
        return False
    return procfs.is_alive(claim.pid, claim.start_ticks) and procfs.environment_of(claim.pid) is None


def kill_rest(tag: str, claim: Claim | None, connect: ConnectReach | None) -> None:
    """Kill the remaining processes of an attempt, of any worker, and release its Spark Connect session."""
    runner, folder = _runner_of(claim), AttemptFolder.of_claim(claim)
    if runner is not None:
        remains.kill_session(runner)
    if runner is not None and folder is not None and (keeper := folder.keeper()) is not None:
        remains.kill_keeper(keeper)
    remains.kill_tagged(tag)
    if claim is not None and runner is not None:
        release_left(claim.session, Path(claim.folder or ""), connect)


def record_of(claim: Claim | None) -> End | None:
    """Read the dead runner's exit record in the claim's folder. It must have the claim's own nonce.

    The folder is not changed: its worker stores the log when it starts.
    """
    folder = AttemptFolder.of_claim(claim)
    if claim is None or folder is None:
        return None
    try:
        record = folder.exit_record()
    except (OSError, ValueError, UnreadableRecordError) as exc:
        _log.warning("exit_record_unreadable", attempt=claim.attempt, folder=claim.folder, error=str(exc))
        return None
    if record is None or (record.attempt, record.nonce) != (claim.attempt, claim.nonce):
        return None
    return record


def _runner_of(claim: Claim | None) -> ProcessId | None:
    """The runner that won a claim, dead or alive, from a folder with the claim's own nonce."""
    folder = AttemptFolder.of_claim(claim)
    if claim is None or folder is None:
        return None
    try:
        noted = folder.claim()
        return folder.last_runner() if noted is not None and noted.nonce == claim.nonce else None
    except (OSError, ValueError, UnreadableRecordError) as exc:
        _log.warning("claim_unreadable", attempt=claim.attempt, folder=claim.folder, error=str(exc))
        return None


def _last_words(folder: AttemptFolder) -> str:
    lines = (read_if_there(folder.runner_log) or b"").decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
