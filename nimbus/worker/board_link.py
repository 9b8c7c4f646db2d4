"""A runner's connection to the attempt board: performs the instructions that concern it, and reports answers.

It has its own thread, because ZooKeeper may be unreachable for hours while the runner's loop must continue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from nimbus.attempt import model as m
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, StoreUnavailableError
from nimbus.worker.clock import boottime_s
from nimbus.worker.connections import OpenBoard
from nimbus.worker.held_attempt import HeldAttempt
from nimbus.worker.retry import pauses

BoardInstruction = m.Claim | m.Look | m.Beat | m.Keep | m.PutEnd
_KINDS: dict[type[BoardInstruction], str] = {
    m.Claim: "claim",
    m.PutEnd: "end",
    m.Look: "slots",
    m.Keep: "checkpoint",
    m.Beat: "beat",
}
"""Most urgent first, with names for the log."""

_log = structlog.get_logger(__name__)


class BoardLink:
    """Thread `runner-board`: performs the newest instruction of each kind, again until the board answers."""

    must_leave = False
    """Report `LeaveAsked` when the board does not answer."""

    def __init__(
        self,
        attempt: HeldAttempt,
        open_board: Callable[[], OpenBoard],
        tell: Callable[[m.Event], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Create it without starting.

        Args:
            attempt: The attempt; has its claim before `Claim` is put, and its record before `PutEnd`.
            open_board: Connects.
            tell: Reports an event; called on this thread, and on those of the ZooKeeper client.
            fail: Called with an error that ends this thread.
        """
        self._attempt, self._open_board, self._tell, self._fail = attempt, open_board, tell, fail
        self._opened: OpenBoard | None = None
        self._claimed_s: float | None = None
        self._waiting: dict[type[BoardInstruction], BoardInstruction] = {}
        self._failed: set[type[BoardInstruction]] = set()
        """Kinds that a defect concerns: the others go first, until one of them is performed."""
        self._changed = threading.Condition()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runner-board", daemon=True)

    def start(self) -> None:
        """Start the thread, which connects."""
        self._thread.start()

    def put(self, instruction: BoardInstruction) -> None:
        """Perform it soon, instead of an earlier one of its kind that still waits. Any thread."""
        with self._changed:
            waiting = self._waiting.get(type(instruction))
            if not (isinstance(waiting, m.Look) and waiting.watch):  # that one answers, too
                self._waiting[type(instruction)] = instruction
            self._changed.notify()

    def close(self, deadline_s: float = 5.0) -> None:
        """End the thread and the connection; a call that hangs in ZooKeeper is abandoned."""
        with self._changed:
            self._leaving.set()
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(deadline_s)

    def _run(self) -> None:
        waits = pauses()
        wanted: BoardInstruction | None = None
        while not self._leaving.is_set():
            try:
                if self._opened is None:
                    self._opened = self._open_board()
                wanted = self._next()
                if wanted is not None:
                    self._answer(self._opened.board, wanted)
                    self._failed.clear()
                    waits = pauses()
                continue
            except StoreUnavailableError as exc:
                what = "connection" if wanted is None else _KINDS[type(wanted)]
                _log.warning(
                    "board_unreachable", attempt=str(self._attempt.id), wanted=what, error=str(exc)[:300]
                )
                if self.must_leave:
                    with self._changed:
                        self._waiting.pop(m.Claim, None)  # nobody would run what it claims
                    self._tell(m.LeaveAsked())
            except Exception as exc:  # noqa: BLE001 - top of the thread
                if not isinstance(wanted, m.Look | m.Beat | m.Keep):
                    self._fail(exc)
                    break
                # A defect must not cost a running attempt its runner.
                _log.exception("board_link_failed", attempt=str(self._attempt.id))
                self._failed.add(type(wanted))
            self._leaving.wait(next(waits))
        if self._opened is not None:
            self._opened.close()

    def _next(self) -> BoardInstruction | None:
        """Wait for the most urgent instruction; None: the thread must end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._leaving.is_set())
            urgent = [self._waiting[kind] for kind in _KINDS if kind in self._waiting]
            return None if self._leaving.is_set() else min(urgent, key=lambda one: type(one) in self._failed)

    def _answer(self, board: AttemptBoard, wanted: BoardInstruction) -> None:
        try:
            event = self._perform(board, wanted)
        except AttemptWithdrawnError:
            event = m.Withdrawn()
        with self._changed:
            if self._waiting.get(type(wanted)) is wanted:
                del self._waiting[type(wanted)]
        if event is not None:
            self._tell(event)

    def _perform(self, board: AttemptBoard, wanted: BoardInstruction) -> m.Event | None:
        attempt = self._attempt
        match wanted:
            case m.Claim():
                if self._claimed_s is None:
                    self._claimed_s = boottime_s()
                return attempt.claim_answered(board.claim(attempt.claim), self._claimed_s)
            case m.Look(watch):
                asked_s = boottime_s()
                return attempt.looked(board.read(attempt.id, self._tell_changed if watch else None), asked_s)
            case m.Beat() | m.Keep():
                attempt.write(board, wanted)
                return None
            case m.PutEnd():
                assert attempt.record is not None  # noqa: S101 - see `__init__`
                return attempt.end_answered(board.end(attempt.record))

    def _tell_changed(self) -> None:  # the same for each read, so that the client keeps one watch
        self._tell(m.Changed())
