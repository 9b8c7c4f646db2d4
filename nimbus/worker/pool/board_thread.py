"""An executor's connection to the board: slots of many attempts, several in one transaction.

Thread `executor-board`. During an outage requests wait; nothing else happens.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from nimbus.domain.slots import Claim, End
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, StoreUnavailableError
from nimbus.worker.clock import boottime_s
from nimbus.worker.connections import OpenBoard
from nimbus.worker.loop import Action
from nimbus.worker.pool.exits import Exits
from nimbus.worker.retry import pauses

T = TypeVar("T")
Filled = Callable[[Claim | End | None, float], None]
"""Called with the content of a slot (None: the attempt does not exist any more), and with the time of the
first try, since boot."""
_Request = tuple[Claim | End, Filled, Action | None]

MOST_TOGETHER = 64
"""Slots in one transaction: with claims of 0.5 KiB and ENDs of 1 KiB far below ZooKeeper's limit."""

_log = structlog.get_logger(__name__)


class BoardThread:
    """`fill`, `call` and `close` may be called from any thread; results are delivered by `post`."""

    def __init__(
        self, open_board: Callable[[], OpenBoard], exits: Exits, post: Callable[[Action], None]
    ) -> None:
        self._open_board, self._exits, self._post = open_board, exits, post
        self._asked: deque[_Request] = deque()
        self._calls: deque[Callable[[AttemptBoard], None]] = deque()
        self._fills: list[_Request] = []
        """Requests taken from `_asked`; their ENDs are on disk."""
        self._first_tried_s: dict[int, float] = {}
        """When each record was first sent, by its identity. That first try may have succeeded."""
        self._opened: OpenBoard | None = None
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="executor-board", daemon=True)

    def start(self) -> None:
        """Connect, and wait for work."""
        self._thread.start()

    def fill(self, record: Claim | End, then: Filled, noted: Action | None = None) -> None:
        """Put a record into its slot; `noted` is called before that, when an END's record is on disk."""
        self._asked.append((record, then, noted))
        self._wake.set()

    def call(self, ask: Callable[[AttemptBoard], T], then: Callable[[T], None]) -> None:
        """Call the board; `then` is not called if the attempt does not exist any more."""

        def done(board: AttemptBoard) -> None:
            try:
                answer = ask(board)
            except AttemptWithdrawnError as exc:
                _log.info("attempt_withdrawn", error=str(exc))
                return
            self._post(partial(then, answer))

        self._calls.append(done)
        self._wake.set()

    def close(self, deadline_s: float = 5.0) -> None:
        """End the thread; waiting requests are dropped."""
        self._closing = True
        self._wake.set()
        self._thread.join(deadline_s)

    def _run(self) -> None:  # an error ends the executor, and its worker reports the attempts as lost
        waits = pauses()
        while not self._closing:
            self._take()
            if not (self._fills or self._calls):
                self._wake.wait()
            self._wake.clear()
            self._take()
            try:
                self._step()
                waits = pauses()
            except StoreUnavailableError as exc:
                _log.warning("board_unreachable", waiting=len(self._fills), error=str(exc)[:300])
                self._pause(next(waits))

    def _pause(self, seconds: float) -> None:
        """Wait until the board may answer again; new requests are taken after that."""
        until = time.monotonic() + seconds
        while not self._closing and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))

    def _take(self) -> None:
        """Take requests, also while the board is unreachable, because exit records must get to the disk."""
        taken = [self._asked.popleft() for _ in range(len(self._asked))]
        self._exits.note(record for record, _, _ in taken if isinstance(record, End))
        for _, _, noted in taken:
            if noted is not None:
                self._post(noted)
        self._fills += taken

    def _step(self) -> None:
        if self._opened is None:
            self._opened = self._open_board()
        board = self._opened.board
        while self._fills:
            some = self._fills[:MOST_TOGETHER]
            for record, _, _ in some:
                self._first_tried_s.setdefault(id(record), boottime_s())
            standing = board.fill([record for record, _, _ in some])
            del self._fills[: len(some)]
            for (record, then, _), stands in zip(some, standing, strict=True):
                self._post(partial(then, stands, self._first_tried_s.pop(id(record))))
        self._exits.all_delivered()
        if self._calls:  # one at a time, because claims and ENDs have priority
            self._calls[0](board)
            self._calls.popleft()
