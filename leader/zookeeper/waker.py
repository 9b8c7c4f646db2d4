"""Wakes kazoo's connection thread, once for each request, without ever being full."""

from __future__ import annotations

import errno
import os
import threading


class Waker:
    """Stands in for both ends of the pair of sockets through which kazoo wakes its connection thread.

    Such a pair holds some 280 bytes. Requests that were given up leave theirs, and a burst of requests needs
    as many: then whoever adds one more is blocked, without a limit while there is no connection (kazoo #577).
    A counter of the kernel has room for more than can ever be asked.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._lock = (
            threading.Lock()
        )  # so that nobody writes to a number that was closed and given to another

    def fileno(self) -> int:
        """Readable while something was sent and not received; -1 once closed."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Wake the thread. Never waits. OSError once closed."""
        with self._lock:
            self._require_open()
            os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        """Take back one byte. BlockingIOError when there is none."""
        with self._lock:
            self._require_open()
            os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        """Kazoo closes both ends, so this is called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _require_open(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the client is closed")
