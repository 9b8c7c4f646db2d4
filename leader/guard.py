"""The question put to a candidate that holds the lock: may you lead?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from leader.errand import Afterwards, Errand, in_words

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
        """Judge. On any thread of the loop's; may take as long as the configured `guard_timeout`."""
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
        return Verdict(False, (f"the guard raised {in_words(exc)}",))
    if not isinstance(verdict, Verdict):
        return Verdict(False, (f"the guard returned {verdict!r}, wanted a Verdict",))
    # `ready` may be anything that is true; only True is yes.
    return verdict if verdict.ready is True else replace(verdict, ready=False)


class GuardAsker:
    """Asks a guard as an errand, because it is foreign code and may hang.

    A guard that hangs cannot be stopped in Python, so its thread is left alone; while it hangs,
    it is asked nothing else.

    Args:
        send: Has an errand done, soon, on some thread.
    """

    def __init__(self, guard: Guard, send: Callable[[Errand], None]) -> None:
        self._guard, self._send = guard, send
        self.busy = False
        """Whether it owes an answer."""

    def ask(self, report: Callable[[Verdict], None]) -> bool:
        """Ask; the verdict arrives at `report`, or never. Does not block. By who drives only.

        Returns:
            False, and asks nothing, while an earlier question is not answered.
        """
        if self.busy:
            return False
        self.busy = True
        self._send(lambda: self._answered(report))
        return True

    def _answered(self, report: Callable[[Verdict], None]) -> Afterwards:
        try:
            verdict = checked(self._guard)
        finally:
            self.busy = False
        return lambda: report(verdict)
