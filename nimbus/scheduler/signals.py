"""What wakes a thread of this package: signals, which say only "look again", and the request to end."""

from __future__ import annotations

import queue

_LOOK, _END = "look", "end"


class Signals:
    """Taken by one thread, sent by any: to send only enqueues, so a watch may."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()

    def look(self) -> None:
        """Wake the thread: something may have changed."""
        self._inbox.put(_LOOK)

    def end(self) -> None:
        """Wake the thread to end."""
        self._inbox.put(_END)

    def asked_to_end(self, wait_s: float, gather_s: float = 0.0) -> bool:
        """Wait for a signal, for `wait_s` at most; signals that came together are taken as one.

        Args:
            wait_s: Longest wait.
            gather_s: After a first signal, wait as long for a second one. A request to end ends the wait.

        Returns:
            Whether the thread is to end; if not, it looks again.
        """
        said: set[str] = set()
        try:
            said.add(self._inbox.get(timeout=wait_s))
            if gather_s and _END not in said:
                said.add(self._inbox.get(timeout=gather_s))
            while True:
                said.add(self._inbox.get_nowait())
        except queue.Empty:
            return _END in said
