"""The question put to a candidate that holds the lock: may you lead?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's answer.

    Args:
        ready: Whether the candidate may lead.
        reasons: Why not, for people.
        guard: Name of the guard, where several are asked.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    guard: str = ""


class Guard(Protocol):
    """Asked after the epoch is raised, before anybody is told. No, an exception and silence all mean no."""

    def __call__(self) -> Verdict:
        """Judge. On a thread of the election's; may take as long as the configured `guard_timeout`."""
        ...


def named(name: str, guard: Guard) -> Guard:
    """Give a guard a name, which its verdict and its reasons then bear."""

    def ask() -> Verdict:
        verdict = checked(guard)
        reasons = tuple(f"{name}: {reason}" for reason in verdict.reasons)
        if not verdict.ready and not reasons:
            reasons = (f"{name}: says no",)
        return Verdict(verdict.ready, reasons, name)

    return ask


def all_of(*guards: Guard) -> Guard:
    """A guard that is content when all of `guards` are. All are asked, so that all reasons are told."""

    def ask() -> Verdict:
        verdicts = [checked(guard) for guard in guards]
        ready = all(verdict.ready for verdict in verdicts)
        return Verdict(ready, tuple(reason for verdict in verdicts for reason in verdict.reasons))

    return ask


def limited(guard: Guard, limit: timedelta) -> Guard:
    """A guard that says no when `guard` has not answered within `limit`, and while it still has not."""
    owes = threading.Lock()  # held while an answer is owed, also after the limit

    def ask() -> Verdict:
        if not owes.acquire(blocking=False):
            return Verdict(False, ("still hangs in an earlier question",))
        answers: SimpleQueue[Verdict] = SimpleQueue()

        def judge() -> None:
            verdict = checked(guard)
            owes.release()
            answers.put(verdict)

        try:
            # A thread for each question: nobody tells us when the last one has been asked.
            threading.Thread(target=judge, name="leader-guard-limited", daemon=True).start()
        except RuntimeError:
            owes.release()
            raise
        try:
            return answers.get(timeout=limit.total_seconds())
        except Empty:
            return Verdict(False, (f"gave no answer within {limit}",))

    return ask


def checked(guard: Guard) -> Verdict:
    """Ask; whatever is raised, and whatever is no verdict, means no."""
    try:
        verdict: object = guard()
    except BaseException as exc:  # noqa: BLE001 - foreign code: whatever it raises means no, a cancellation too
        _log.warning("guard_raised", exc_info=True)
        return Verdict(False, (f"the guard raised {type(exc).__name__}: {exc}",))
    if not isinstance(verdict, Verdict):
        return Verdict(False, (f"the guard returned {verdict!r}, wanted a Verdict",))
    # `ready` may be anything that is true; only True is yes.
    return verdict if verdict.ready is True else replace(verdict, ready=False)


class GuardThread:
    """Asks a guard on the thread `leader-guard`, because it is foreign code and may hang.

    A guard that hangs cannot be stopped in Python, so its thread is left alone; while it hangs,
    it is asked nothing else.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._lock = threading.Lock()  # held for a few instructions
        self._questions: SimpleQueue[Callable[[Verdict], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False

    @property
    def here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread, if it is not there. A candidate that waits for its verdict has no time for it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leader-guard", daemon=True)
                self._thread.start()

    def ask(self, report: Callable[[Verdict], None]) -> bool:
        """Ask; the verdict arrives at `report`, on the guard's thread, or never. Does not block.

        Returns:
            False, and asks nothing, while an earlier question is not answered.
        """
        self.start()
        with self._lock:
            if self._busy:
                return False
            self._busy = True
        self._questions.put(report)
        return True

    def close(self, timeout_s: float) -> bool:
        """End the thread. False if the guard still holds it."""
        with self._lock:
            thread = self._thread
        if thread is None:
            return True
        self._questions.put(None)
        if thread is not threading.current_thread():
            thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while (report := self._questions.get()) is not None:
            verdict = checked(self._guard)
            with self._lock:
                self._busy = False
            report(verdict)
