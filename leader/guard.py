"""The question put to a candidate that holds the lock: may you lead?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's answer; `reasons` say why not, for people."""

    ready: bool
    reasons: tuple[str, ...] = ()


Guard = Callable[[], Verdict]
"""Asked after the epoch is raised and before anybody is told. No, an exception and silence all mean no."""


class GuardRunner:
    """Asks the guard on a thread of its own, because it is foreign code and may hang.

    A guard that hangs cannot be stopped in Python, so its thread is left alone; but while it
    hangs, no second one is started and every question is answered with no.
    """

    def __init__(self, guard: Guard, report: Callable[[int, Verdict], None]) -> None:
        self._guard, self._report = guard, report
        self._thread: threading.Thread | None = None

    def ask(self, epoch: int) -> None:
        """Ask for `epoch`; the verdict arrives at `report`, or never. Does not block."""
        if self._thread is not None and self._thread.is_alive():
            self._report(epoch, Verdict(False, ("the guard still hangs in an earlier question",)))
            return
        self._thread = threading.Thread(target=self._run, args=(epoch,), name="leader-guard", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for a running question. False if it still runs."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self, epoch: int) -> None:
        try:
            verdict = self._guard()
        except Exception as exc:  # noqa: BLE001 - foreign code: whatever it raises means no
            _log.warning("guard_raised", epoch=epoch, exc_info=True)
            verdict = Verdict(False, (f"the guard raised {type(exc).__name__}: {exc}",))
        if not isinstance(verdict, Verdict):
            verdict = Verdict(False, (f"the guard returned {verdict!r}, wanted a Verdict",))
        self._report(epoch, verdict)
