"""Worker threads that do not keep the process alive, and the order in which they run calls.

The threads of `concurrent.futures` are joined at exit. These are not: a read from a server that hangs must
not delay a shutdown that has a deadline.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from enum import IntEnum
from typing import Any, Generic, TypeVar

from blobsync.errors import NoThreadError, SyncerClosedError

Result = TypeVar("Result")
Item = TypeVar("Item")

_TURN = 4
"""Every fourth call comes from the other lane, for any rank."""


class Lane(IntEnum):
    """SMALL: small objects and looks. LARGE: large blobs."""

    SMALL = 0
    LARGE = 1


class Lanes(Generic[Item]):
    """Two priority queues that share threads. Pure, not thread-safe.

    In each lane the lowest rank is first, and of equal ranks the oldest. The lane with the lower rank goes
    first, but every fourth call comes from the other lane. So a large blob that is first arrives quickly, but
    small objects do not wait until it is complete; and the other way round.
    """

    def __init__(self) -> None:
        self._heaps: dict[Lane, list[tuple[tuple[int, int], int, Item]]] = {lane: [] for lane in Lane}
        self._numbers = itertools.count()
        self._turns = 0

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def __iter__(self) -> Iterator[Item]:
        for heap in self._heaps.values():
            for _, _, item in heap:
                yield item

    def put(self, item: Item, lane: Lane, rank: tuple[int, int]) -> None:
        """Add an item."""
        heapq.heappush(self._heaps[lane], (rank, next(self._numbers), item))

    def take(self) -> Item:
        """Remove and return the next item. IndexError: there is none."""
        heaps = sorted((heap for heap in self._heaps.values() if heap), key=lambda heap: heap[0][:2])
        self._turns = self._turns + 1 if len(heaps) > 1 else 0
        others_turn = self._turns % _TURN == 0
        return heapq.heappop(heaps[-1 if others_turn else 0])[-1]


class DaemonPool:
    """Runs calls on up to `size` daemon threads, which are started when they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._changed = threading.Condition()
        self._calls: Lanes[tuple[Future[Any], Callable[[], Any]]] = Lanes()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(
        self, call: Callable[[], Result], *, lane: Lane = Lane.SMALL, rank: tuple[int, int] = (0, 0)
    ) -> Future[Result]:
        """Run `call` soon; see `Lanes`. If no thread can be started, the future has a NoThreadError.

        SyncerClosedError if the pool was closed.
        """
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise SyncerClosedError
            try:
                if self._idle <= len(self._calls) and len(self._threads) < self.size:
                    self._start_thread()
            except RuntimeError as exc:  # the system allows no more threads
                if not self._threads:
                    future.set_exception(
                        NoThreadError(f"{exc}: end other processes, or raise their limit (`ulimit -u`)")
                    )
                    return future
            self._calls.put((future, call), lane, rank)
            self._changed.notify()
        return future

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self, timeout_s: float) -> bool:
        """Cancel calls that have not begun, and wait for the others. False: some run beyond the timeout."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
            threads, waiting = list(self._threads), list(self._calls)
            self._calls = Lanes()
            self._changed.notify_all()
        for future, _ in waiting:
            future.cancel()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            self._idle += 1
            while not self._calls and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return None if self._closed else self._calls.take()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001 - set on the future
                future.set_exception(exc)
            else:
                with contextlib.suppress(InvalidStateError):
                    future.set_result(result)
            del item, future, call  # so that an idle thread holds no references
