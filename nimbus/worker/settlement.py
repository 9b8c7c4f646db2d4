"""What is to be said about attempts whose runner is gone: from the folder, the slots, and /proc.

The rule: a record that stands is believed; without one, whatever is left of the attempt is killed first, and
only then is it called lost. If nobody had claimed it, filling CLAIM ourselves makes sure that nobody will.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog

from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.domain.run import Outcome
from nimbus.domain.slots import Claim, End, Holder
from nimbus.domain.workers import Assignment
from nimbus.ports import AttemptBoard, AttemptWithdrawnError
from nimbus.records import UnreadableRecordError
from nimbus.worker import procfs
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.attempt_session import release_left
from nimbus.worker.files import read_if_there
from nimbus.worker.identity import host_id
from nimbus.worker.pool.exits import exit_of
from nimbus.worker.pool.folder import ExecutorFolder
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import ConnectProvider
from nimbus.worker.tags import ATTEMPT_VARIABLE, RUNNER_VARIABLE, attempt_tag

_KILL_DEADLINE_S = 10.0
_HELD_BY = {Holder.PROCESS: "runner", Holder.POOLED: "executor"}

_log = structlog.get_logger(__name__)


def ending_of_the_dead(
    folder: AttemptFolder,
    board: AttemptBoard,
    worker: WorkerId,
    now: datetime,
    connect: ConnectProvider | None = None,
) -> End | None:
    """Find out and record how an attempt ended whose runner is dead and left no record.

    Args:
        folder: Of the attempt; its lock is free.
        board: Where CLAIM is.
        worker: Who we are.
        now: The time, for the record.
        connect: What the worker has for tasks in `mode: connect`.

    Returns:
        What stands in the exit record now; None when the attempt is not ours to end.

    Raises:
        StoreUnavailableError: try again; nothing was recorded.
    """
    attempt = str(folder.attempt)
    runner = folder.last_runner()
    if runner is not None:  # also while ZooKeeper is away, and with it the attempt's tag
        kill_session(runner)
    kill_tagged(attempt_tag(board.cluster(), attempt))
    release_left(folder.session(), folder.path, connect)
    why = f"its runner ended before it could claim the attempt: {_last_words(folder)}"
    refused = _end(attempt, Outcome.REFUSED, why, now)
    won = fence(board, refused, worker, now)
    if won is None:
        return None
    if not won.is_fenced and won.worker != worker:
        return None
    end = refused if won.is_fenced else _end(attempt, Outcome.LOST, "its runner died without a word", now)
    return folder.record_exit(replace(end, nonce=won.nonce))


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


def refuse(board: AttemptBoard, order: Assignment, worker: WorkerId, reason: str, now: datetime) -> None:
    """Say that an attempt cannot be started here: fence it, and end it as refused. Safe to repeat."""
    fence(board, _end(order.attempt, Outcome.REFUSED, reason, now), worker, now)


def lost(claim: Claim, why: str, now: datetime) -> End:
    """The END of an attempt whose processes are gone without a record."""
    return replace(_end(claim.attempt, Outcome.LOST, why, now), nonce=claim.nonce)


def put_end(board: AttemptBoard, end: End) -> str:
    """Fill END; what became of that, for the folder."""
    try:
        standing = board.end(end)
    except AttemptWithdrawnError:
        return "nobody waits for it any more"
    return f"END says {standing.outcome} by {standing.written_by}"


def is_supervised(tag: str, claim: Claim | None) -> bool:
    """Tell whether a runner of the attempt lives on this host, in whosever folder of its cluster.

    The tag finds it before it claims; after that the claim's folder says which process it is. A driver that
    another user runs cannot be told from a supervised one; it counts as one.
    """
    if _runners(tag):
        return True
    if claim is not None and (executor := ExecutorFolder.of_claim(claim)) is not None:
        return executor.lock.is_held()
    runner = _runner_of(claim)
    if runner is not None and procfs.is_alive(runner.pid, runner.start_ticks):
        return True
    if claim is None or claim.pid is None or claim.start_ticks is None:
        return False
    return procfs.is_alive(claim.pid, claim.start_ticks) and procfs.environment_of(claim.pid) is None


def reap(
    board: AttemptBoard, order: Assignment, now: datetime, connect: ConnectProvider | None = None
) -> bool:
    """Do a REAP order for an attempt whose folder is not ours.

    Returns:
        False while its runner lives: it will report itself as soon as it reaches ZooKeeper. Look again later.
    """
    claim = _as_it_stands(order.claim, board)
    here: HostId = host_id()
    if claim is not None and claim.host != here:
        return True  # nothing can be seen of it from here; the leader learns that when the host is lost
    tag = attempt_tag(board.cluster(), order.attempt)
    if is_supervised(tag, claim):
        return False
    runner = _runner_of(claim)
    if runner is not None:
        kill_session(runner)
    kill_tagged(tag)
    if claim is not None and runner is not None:
        release_left(claim.session, Path(claim.folder or ""), connect)
    end = _end(order.attempt, Outcome.LOST, "its runner is gone from its host", now)
    if claim is not None:  # read only now: a living runner may still write its record
        end = _undelivered(claim) or lost(claim, f"its {_HELD_BY[claim.holder]} is gone from its host", now)
    put_end(board, end)
    return True


def _as_it_stands(claim: Claim | None, board: AttemptBoard) -> Claim | None:
    """The claim of an order, with all that stands in it: a leader of an older release copies but a part."""
    standing = None if claim is None else board.read(AttemptId.parse(claim.attempt)).claim
    return standing if standing is not None and claim is not None and standing.nonce == claim.nonce else claim


def _folder_of(claim: Claim) -> AttemptFolder | None:
    """The folder that a claim names, of whichever worker. The path comes from ZooKeeper: nothing is sure."""
    path = Path(claim.folder or "")
    return AttemptFolder(path) if path.is_absolute() and path.name == claim.attempt else None


def _runner_of(claim: Claim | None) -> ProcessId | None:
    """The runner that won a claim, dead or alive. Only a folder with the claim's own nonce counts."""
    if claim is not None and (executor := ExecutorFolder.of_claim(claim)) is not None:
        return executor.lock.last_holder()
    folder = _folder_of(claim) if claim is not None else None
    if claim is None or folder is None:
        return None
    try:
        noted = folder.claim()
        return folder.last_runner() if noted is not None and noted.nonce == claim.nonce else None
    except (OSError, ValueError, UnreadableRecordError) as exc:
        _log.warning("claim_unreadable", attempt=claim.attempt, folder=claim.folder, error=str(exc))
        return None


def _undelivered(claim: Claim) -> End | None:
    """Read what the dead runner recorded in the claim's folder: a record with the claim's own nonce.

    The folder stays as it is: its worker stores the log when it starts.
    """
    if (executor := ExecutorFolder.of_claim(claim)) is not None:
        return exit_of(executor.exits, claim)
    folder = _folder_of(claim)
    try:
        record = folder.exit_record() if folder is not None else None
    except (OSError, ValueError, UnreadableRecordError) as exc:
        _log.warning("exit_record_unreadable", attempt=claim.attempt, folder=claim.folder, error=str(exc))
        return None
    if record is None or (record.attempt, record.nonce) != (claim.attempt, claim.nonce):
        return None
    return record


def kill_session(runner: ProcessId) -> bool:
    """Kill what is left of a dead runner's session."""
    return procfs.kill_all(lambda: _of_session(runner), deadline_s=_KILL_DEADLINE_S)


def kill_tagged(tag: str) -> bool:
    """Kill what is left of an attempt, wherever it went: its driver's tag is on all that it started.

    Not while any runner of the attempt lives, in whosever folder of its cluster: its driver bears the tag.
    """

    def find() -> list[ProcessId]:
        if _runners(tag):
            return []
        return procfs.with_variable(ATTEMPT_VARIABLE, tag)

    return procfs.kill_all(find, deadline_s=_KILL_DEADLINE_S)


def _runners(tag: str) -> list[ProcessId]:
    """Living runners of an attempt. A task of another user can give itself the variable, but not our uid."""
    found = procfs.with_variable(RUNNER_VARIABLE, tag)
    return [runner for runner in found if procfs.user_of(runner.pid) == os.getuid()]


def _of_session(leader: ProcessId) -> list[ProcessId]:
    """Processes of a dead runner's session; none when its pid, and so the session's, was given away."""
    now = procfs.read_stat(leader.pid)
    if now is not None and now.id != leader:
        return []
    return [
        found.id
        for found in procfs.living()
        if found.session == leader.pid and found.id.start_ticks >= leader.start_ticks and found.id != leader
    ]


def _last_words(folder: AttemptFolder) -> str:
    lines = (read_if_there(folder.runner_log) or b"").decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _end(attempt: str, outcome: Outcome, reason: str, now: datetime) -> End:
    return End(attempt=attempt, outcome=outcome, written_by="worker", ended_at=now, reason=reason[:500])
