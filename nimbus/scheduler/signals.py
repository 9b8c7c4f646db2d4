"""Signals that wake a thread of this package: "look again", and the request to end."""

from __future__ import annotations

import queue

_LOOK, _END = "look", "end"


class Signals:
    """One thread receives, any thread sends. Sending only enqueues, so a watch may send."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()

    def look(self) -> None:
        """Wake the thread: something may have changed."""
        self._inbox.put(_LOOK)

    def end(self) -> None:
        """Wake the thread to end."""
        self._inbox.put(_END)

    def asked_to_end(self, wait_s: float, gather_s: float = 0.0) -> bool:
        """Wait for a signal, for `wait_s` at most. Signals that came together count as one.

        Args:
            wait_s: Longest wait.
            gather_s: Pause after the first signal, to collect more. A request to end ends it.

        Returns:
            True: the thread must end. False: it must look again.
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
