"""The thread of a scheduler's registrar, announcer, catalog follower and access follower."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from datetime import timedelta

import structlog

from nimbus.ports import StoreUnavailableError

_log = structlog.get_logger(__name__)


class Follower(ABC):
    """Looks at its start, after each signal, and after each pause, until it must end.

    A look that fails is logged, and the next one follows: scheduling goes on without it.

    Args:
        thread: Name of the thread.
        pause_s: Longest pause between two looks.
        gather_s: Pause after the first signal, to collect more. The next signal ends it.
    """

    def __init__(self, thread: str, pause_s: float, gather_s: float = 0.0) -> None:
        self._pause_s, self._gather_s = pause_s, gather_s
        self._inbox: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Signals; True is the request to end."""
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    @abstractmethod
    def _look_now(self) -> None:
        """Read, and do what follows. Called on the thread."""

    def _clean_up(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what remains at the end. The last call on the thread."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self) -> None:
        """Look again soon. Any thread, and watches: only enqueues."""
        self._inbox.put(False)

    def stop_soon(self) -> None:
        """Make the thread end. Returns at once."""
        self._inbox.put(True)

    def stop(self, timeout: timedelta) -> None:
        """End the thread. After `timeout`, the daemon thread ends with the process."""
        self.stop_soon()
        if self._thread.ident is not None:  # else it was not started
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        ends = False
        while not ends:
            try:
                self._look_now()
            except StoreUnavailableError as exc:
                _log.warning("follower_delayed", thread=self._thread.name, error=str(exc))
            except Exception:  # noqa: BLE001 - the top of the thread: the next look may be luckier
                _log.exception("follower_failed", thread=self._thread.name)
            ends = self._asked_to_end()
        self._clean_up()

    def _asked_to_end(self) -> bool:
        """Wait for a signal, or the end of the pause. Signals that came together count as one."""
        signals: list[bool] = []
        try:
            signals.append(self._inbox.get(timeout=self._pause_s))
            if self._gather_s and not signals[0]:
                signals.append(self._inbox.get(timeout=self._gather_s))
            while True:
                signals.append(self._inbox.get_nowait())
        except queue.Empty:
            return any(signals)
