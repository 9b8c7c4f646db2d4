"""A loop whose core does what a test tells it, and foreign code that hangs until it may go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue

from leader.clock import Countdown, boottime
from leader.journal import DeferredJournal, LogJournal
from leader.loop import Loop
from leader.protocol.requests import Operation, Steps
from leader.session_loop import LinkEvent

WITHIN = timedelta(seconds=10)
WITHIN_S = WITHIN.total_seconds()


class ScriptedCore:
    """Ends when it is told to."""

    def __init__(self) -> None:
        self.ended = False
        self.due_at: timedelta | None = None
        self.foreseen: tuple[Operation, ...] = ()
        self.due = threading.Event()
        self.aborted: list[str] = []
        self.while_waiting: Callable[[], None] = lambda: None

    def end(self) -> Steps[None]:
        self.ended = True
        yield from ()

    def expired(self) -> Steps[None]:
        self.due_at = None
        self.due.set()
        yield from ()

    def heard(self, path: str, gone: bool) -> Steps[None]:
        yield from ()

    def link(self, event: LinkEvent) -> Steps[None]:
        yield from ()

    def waits(self) -> None:
        self.while_waiting()

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)
        self.ended = True


class Stage:
    """A loop over a scripted core, and what is done on it."""

    def __init__(self) -> None:
        self.core = ScriptedCore()
        self.loop = Loop(
            self.core,
            _to_the_end,
            last_wait=lambda: WITHIN,
            clock=boottime,
            journal=DeferredJournal(LogJournal()),
            name="loop-of-a-test",
        )
        self.go_on = threading.Event()
        self.held_up: SimpleQueue[str] = SimpleQueue()
        """Threads that foreign code holds up, by name."""

    def do(self, work: Callable[[], None]) -> None:
        """Have `work` done by who drives."""

        def steps() -> Steps[None]:
            work()
            yield from ()

        self.loop.post(steps)

    def done(self) -> threading.Event:
        """An event that is set by who drives, when all that was posted before is done."""
        event = threading.Event()
        self.do(event.set)
        return event

    def hang(self) -> None:
        """As an errand: foreign code that goes on when it is allowed to."""
        self.held_up.put(threading.current_thread().name)
        self.go_on.wait(WITHIN_S)

    def held_up_thread(self) -> str:
        return self.held_up.get(timeout=WITHIN_S)

    def end(self) -> bool:
        self.go_on.set()
        self.loop.post(self.core.end)
        return self.loop.stop(WITHIN) and self.loop.join(Countdown(WITHIN))


def _to_the_end(steps: Steps[None]) -> None:
    for _ in steps:
        pass
