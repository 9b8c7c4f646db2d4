"""The simulated ZooKeeper: the shipped in-memory store, with one-shot watches and sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from nimbus.adapters.memory_store import MemoryCluster, World
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import AttemptId, CommandId, WorkerId
from nimbus.domain.slots import Claim, End, Slots
from nimbus.domain.workers import WorkerInfo
from tests.nimbus.simulation.clocks import Time

SESSION_S = 6.0


@dataclass(frozen=True)
class EndOf:
    """The END of an attempt."""

    attempt: AttemptId


Watched = AttemptId | EndOf | Literal["commands", "workers"]


class Watcher(Protocol):
    """The owner of a watch."""

    def told(self, what: Watched) -> None:
        """It fired."""
        ...


class Session:
    """Keeps the ephemeral nodes of one process."""

    def __init__(self, now_s: float, connected: Callable[[], bool], on_end: Callable[[], None]) -> None:
        self.seen_s = now_s
        self.connected = connected
        self.on_end = on_end
        self.alive = True


class Ensemble:
    """The shared state, and all access to it except the leader's, which is `store`."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.cluster = MemoryCluster()
        self.on_slots: Callable[[AttemptId, Slots, Slots], None] = lambda _attempt, _before, _after: None
        self._watches: dict[Watched, dict[Watcher, None]] = {}
        self._sessions: dict[Session, None] = {}

    @property
    def world(self) -> World:
        """The stored records."""
        return self.cluster.world

    @property
    def available(self) -> bool:
        """True if it answers requests."""
        return self.cluster.available

    # -- watches

    def arm(self, what: Watched, watcher: Watcher) -> None:
        """Notify `watcher` of the next change."""
        self._watches.setdefault(what, {})[watcher] = None

    def fire(self, what: Watched) -> None:
        """Something has changed."""
        for watcher in self._watches.pop(what, ()):
            watcher.told(what)

    # -- sessions

    def open_session(self, connected: Callable[[], bool], on_end: Callable[[], None]) -> Session:
        """Open a session for a process that is connected now."""
        session = Session(self.time.s, connected, on_end)
        self._sessions[session] = None
        return session

    def end_session(self, session: Session) -> None:
        """The process closed it, or died in a way that the server noticed."""
        if self._sessions.pop(session, self) is None:
            session.alive = False
            session.on_end()

    def tick(self) -> None:
        """Expire sessions without contact for too long; an unavailable ensemble expires none."""
        for session in tuple(self._sessions):
            if not self.available or session.connected():
                session.seen_s = self.time.s
            elif self.time.s - session.seen_s >= SESSION_S:
                self.end_session(session)

    # -- workers and runners

    def register(self, info: WorkerInfo) -> None:
        """Write a worker's registration. Watches fire for new registrations, not for updates."""
        comes = info.id not in self.world.workers
        self.cluster.change(workers={**self.world.workers, info.id: info})
        if comes:
            self.fire("workers")

    def withdraw(self, worker: WorkerId) -> None:
        """Remove it."""
        self.cluster.change(workers={key: info for key, info in self.world.workers.items() if key != worker})
        self.fire("workers")

    def claim(self, attempt: AttemptId, claim: Claim) -> Claim | None:
        """Fill CLAIM if it is empty. Returns its content; None: the attempt is not known."""
        slots = self.world.slots.get(attempt)
        if slots is not None and slots.claim is None:
            self._put(attempt, slots, replace(slots, claim=claim))
            return claim
        return None if slots is None else slots.claim

    def end(self, attempt: AttemptId, end: End) -> End | None:
        """Fill END if it is empty. Returns its content; None: the attempt is not known."""
        slots = self.world.slots.get(attempt)
        if slots is not None and slots.end is None:
            self._put(attempt, slots, replace(slots, end=end))
            return end
        return None if slots is None else slots.end

    def beat(self, attempt: AttemptId, *, beating: bool) -> None:
        """Create or remove a runner's beat."""
        slots = self.world.slots.get(attempt)
        if slots is not None and slots.beating is not beating:
            self._put(attempt, slots, replace(slots, beating=beating))

    def _put(self, attempt: AttemptId, before: Slots, after: Slots) -> None:
        self.cluster.change(slots={**self.world.slots, attempt: after})
        self.on_slots(attempt, before, after)
        self.fire(attempt)
        if before.end is not after.end:
            self.fire(EndOf(attempt))

    # -- commands

    def submit(self, queued: QueuedCommand) -> None:
        """Queue a command."""
        self.cluster.change(commands={**self.world.commands, queued.id: queued})
        self.fire("commands")

    def delete_command(self, command: CommandId) -> None:
        """An operator deletes a command's node by hand."""
        commands = {key: queued for key, queued in self.world.commands.items() if key != command}
        self.cluster.change(commands=commands)
        self.fire("commands")
