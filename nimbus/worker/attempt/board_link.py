"""The connection of a runner or an executor to the attempt board: performs the instructions of its attempts.

Its own thread, because ZooKeeper may be unreachable for hours while the loop must continue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

import structlog

from nimbus.attempt import model as m
from nimbus.domain.attempts.slots import Claim, End
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, StoreUnavailableError
from nimbus.worker.attempt.connections import OpenBoard
from nimbus.worker.attempt.held_attempt import HeldAttempt
from nimbus.worker.host.clock import boottime_s, pauses
from nimbus.worker.pool.folder import ExitRecords

BoardInstruction = m.PutClaim | m.PutEnd | m.ReadBoard | m.KeepCheckpoint | m.SendHeartbeat
_Key = tuple[type[BoardInstruction], HeldAttempt]
_Due = Mapping[_Key, BoardInstruction]
_Events = list[tuple[HeldAttempt, m.Event]]

MAX_TOGETHER = 64
"""Attempts in one request: with claims of 0.5 KiB and ENDs of 1 KiB far below ZooKeeper's limit."""
_URGENCY = {m.PutClaim: 0, m.PutEnd: 0, m.ReadBoard: 1, m.KeepCheckpoint: 2, m.SendHeartbeat: 2}
"""The lowest goes first. Reads go before writes: they show whether an attempt is over."""
_IN_LOG = {
    m.PutClaim: "Claim",
    m.PutEnd: "PutEnd",
    m.ReadBoard: "Look",
    m.KeepCheckpoint: "Keep",
    m.SendHeartbeat: "Beat",
}
"""Their names in `board_unreachable`, which outlive those of the classes."""
_DEFECT_PAUSE_S = 1.0

_log = structlog.get_logger(__name__)


class BoardLink:
    """Performs the newest instruction of each kind for each attempt, again until the board answers."""

    must_leave = False
    """Send no claim, but report `LeaveAsked`; also to all that wait when the board does not answer."""

    def __init__(
        self,
        name: str,
        open_board: Callable[[], OpenBoard],
        report: Callable[[HeldAttempt, m.Event], None],
        fail: Callable[[Exception], None],
        *,
        vital: Collection[type[BoardInstruction]] = (),
        exits: ExitRecords | None = None,
    ) -> None:
        """Create it without starting.

        Args:
            name: The thread's name.
            open_board: Connects.
            report: Takes an event of an attempt; called on this thread, and on those of the ZooKeeper client.
            fail: Called with an error that ends this thread.
            vital: Kinds whose defects end the thread. Others are tried again, alone, and nothing waits for
                them, so that a defect does not cost running attempts their process.
            exits: Where `Record` writes.
        """
        self._open_board, self._report, self._fail = open_board, report, fail
        self._vital, self._exits = vital, exits
        self._opened: OpenBoard | None = None
        self._waiting: dict[_Key, BoardInstruction] = {}
        self._again_s: dict[_Key, float] = {}
        self._unrecorded: dict[HeldAttempt, End] = {}
        self._changed = threading.Condition()
        self._leaving = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which connects."""
        self._thread.start()

    def put(self, attempt: HeldAttempt, instruction: BoardInstruction | m.Record) -> None:
        """Perform it soon, instead of an earlier one of its kind that still waits. Any thread.

        The attempt has its claim before `PutClaim` is put, and its record before `Record`, which includes
        `PutEnd`.
        """
        with self._changed:
            if isinstance(instruction, m.Record):
                self._unrecorded[attempt] = attempt.exit_record
            else:
                key = type(instruction), attempt
                waiting = self._waiting.get(key)
                if not (isinstance(waiting, m.ReadBoard) and waiting.watch):  # that one answers, too
                    self._waiting[key] = instruction
            self._changed.notify()

    def drop(self, attempt: HeldAttempt, *kinds: type[BoardInstruction]) -> None:
        """Perform nothing of these kinds any more; by default, nothing for the attempt. Any thread."""
        with self._changed:
            for kind in kinds or _URGENCY:
                self._waiting.pop((kind, attempt), None)
                self._again_s.pop((kind, attempt), None)

    def close(self, deadline_s: float = 5.0) -> None:
        """End the thread and the connection; a call that hangs in ZooKeeper is abandoned."""
        with self._changed:
            self._leaving = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(deadline_s)

    def _run(self) -> None:
        waits = pauses()
        while not self._leaving:
            due: _Due = {}
            try:
                self._record()
                if self._opened is None:
                    self._opened = self._open_board()
                due = self._next()
                claiming = [attempt for kind, attempt in due if kind is m.PutClaim]
                if self.must_leave and claiming:
                    self._leave(claiming)
                elif due:
                    self._answer(self._opened.board, due)
                waits = pauses()
            except StoreUnavailableError as exc:
                wanted = sorted({_IN_LOG[kind] for kind, _ in due}) or ["connection"]
                _log.warning("board_unreachable", wanted=wanted, error=str(exc)[:300])
                self._leave_if_asked()
                with self._changed:
                    self._changed.wait_for(lambda: self._leaving, next(waits))
            except Exception as exc:  # noqa: BLE001 - top of the thread
                if not due or any(kind in self._vital for kind, _ in due):
                    self._fail(exc)
                    break
                _log.exception("board_link_failed", attempts=[str(attempt.id) for _, attempt in due])
                with self._changed:
                    again_s = time.monotonic() + _DEFECT_PAUSE_S
                    self._again_s |= {key: again_s for key in due if key in self._waiting}
        if self._opened is not None:
            self._opened.close()

    def _record(self) -> None:
        """Write exit records, also while the board is unreachable, because they must get to the disk."""
        with self._changed:
            ended, self._unrecorded = self._unrecorded, {}
        if self._exits is not None:
            self._exits.note(ended.values())
        for attempt in ended:
            self._report(attempt, m.Recorded())
            self.put(attempt, m.PutEnd())

    def _next(self) -> _Due:
        """Wait for the most urgent instructions; empty: write records, or end the thread."""
        with self._changed:
            while not (self._unrecorded or self._leaving):
                if due := self._due():
                    return {key: self._waiting[key] for key in due}
                again_s = min(self._again_s.values(), default=None)
                self._changed.wait(None if again_s is None else max(0.0, again_s - time.monotonic()))
        return {}

    def _due(self) -> list[_Key]:
        now_s = time.monotonic()
        ready = [key for key in self._waiting if self._again_s.get(key, now_s) <= now_s]
        if not ready:
            return []
        first = min(ready, key=lambda key: _URGENCY[key[0]])
        urgency = _URGENCY[first[0]]
        if first in self._again_s or urgency == _URGENCY[m.SendHeartbeat]:
            return [first]
        together = [key for key in ready if _URGENCY[key[0]] == urgency and key not in self._again_s]
        return together[:MAX_TOGETHER]

    def _leave_if_asked(self) -> None:
        if self.must_leave:
            with self._changed:
                attempts = {attempt for _, attempt in self._waiting}
            self._leave(attempts)

    def _leave(self, attempts: Collection[HeldAttempt]) -> None:
        for attempt in attempts:
            self.drop(attempt, m.PutClaim)  # nobody would run what it claims
        for attempt in attempts:
            self._report(attempt, m.LeaveAsked())

    def _answer(self, board: AttemptBoard, due: _Due) -> None:
        events = self._perform(board, due)
        with self._changed:
            for key, instruction in due.items():
                self._again_s.pop(key, None)
                if self._waiting.get(key) is instruction:
                    del self._waiting[key]
            all_delivered = not any(kind is m.PutEnd for kind, _ in self._waiting)
        if self._exits is not None and all_delivered:
            self._exits.all_delivered()
        for attempt, event in events:
            self._report(attempt, event)

    def _perform(self, board: AttemptBoard, due: _Due) -> _Events:
        match next(iter(due.values())):
            case m.PutClaim() | m.PutEnd():
                return _fill(board, due)
            case m.ReadBoard():
                return self._read(board, due)
            case m.SendHeartbeat() | m.KeepCheckpoint() as write:
                ((_, attempt),) = due
                try:
                    attempt.write(board, write)
                except AttemptWithdrawnError:
                    return [(attempt, m.AttemptGone())]
                return []

    def _read(self, board: AttemptBoard, due: _Due) -> _Events:
        wanted, asked_s = {}, boottime_s()
        for (_, attempt), read in due.items():
            # The same function for each read, so that the client keeps one watch.
            attempt.changed = attempt.changed or partial(self._report, attempt, m.BoardChanged())
            wanted[attempt.id] = attempt.changed if isinstance(read, m.ReadBoard) and read.watch else None
        slots = board.read_all(wanted)
        return [(attempt, attempt.board_read(slots[attempt.id], asked_s)) for _, attempt in due]


def _fill(board: AttemptBoard, due: _Due) -> _Events:
    records: list[Claim | End] = []
    for kind, attempt in due:
        if kind is m.PutClaim:
            attempt.claim_sent_s = min(attempt.claim_sent_s, boottime_s())
        records.append(attempt.claim if kind is m.PutClaim else attempt.exit_record)
    standing = board.fill(records)
    return [
        (attempt, attempt.claim_answered(now) if kind is m.PutClaim else attempt.end_answered(now))
        for (kind, attempt), now in zip(due, standing, strict=True)
    ]
