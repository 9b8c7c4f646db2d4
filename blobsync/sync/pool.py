"""A few worker threads that do not keep the process alive.

Unlike `concurrent.futures`, whose threads are joined at exit: a read from a stalled server must not hold up a
shutdown that has a deadline.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from blobsync.errors import SyncerClosedError

Result = TypeVar("Result")


class DaemonPool:
    """Runs calls on `size` daemon threads, started at the first call.

    Args:
        size: Number of threads.
        name: Threads are named `<name>-<number>`.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run `call` soon.

        Raises:
            SyncerClosedError: the pool was closed.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self._closed:
                raise SyncerClosedError("this syncer was closed; make a new one")
            self._calls.put((future, call))
            if len(self._threads) < self._size:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
        return future

    def close(self, timeout_s: float) -> bool:
        """Cancel what has not begun, and wait for what has. False: some of it goes on beyond the timeout."""
        until = time.monotonic() + timeout_s
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            with contextlib.suppress(queue.Empty):
                while (waiting := self._calls.get_nowait()) is not None:
                    waiting[0].cancel()
            for _ in threads:
                self._calls.put(None)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001 - handed to whoever asked, whatever it is
                future.set_exception(exc)
            else:
                with contextlib.suppress(InvalidStateError):
                    future.set_result(result)
            del item, future, call  # an idle thread keeps nothing alive
