"""The simulated ZooKeeper: the store in a dict, with sessions that expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import cast

from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.cluster import TreeRegistrations
from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import AttemptId, CommandId
from nimbus.ports import AttemptBoard, AttemptWithdrawnError
from tests.nimbus.dict_cluster import ROOT, Always, DictCluster, World
from tests.nimbus.dict_store import DictCalls
from tests.nimbus.simulation.clocks import START, Time

SESSION_S = 6.0
_EMPTY = Slots()


class Session:
    """Keeps the ephemeral nodes of one process."""

    def __init__(self, cluster: DictCluster, now_s: float, connected: Callable[[], bool]) -> None:
        self.seen_s = now_s
        self.connected = connected
        self.alive = True
        self._calls = DictCalls(Always(cluster.store))

    def register(self, info: WorkerInfo) -> None:
        """Write a worker's registration."""
        TreeRegistrations(self._calls, ROOT).publish_worker(info)

    def heartbeat(self, attempt: AttemptId) -> None:
        """Create a runner's heartbeat, unless the attempt is over."""
        with suppress(AttemptWithdrawnError):
            TreeAttemptBoard(self._calls, ROOT).heartbeat(attempt, {})

    def end(self) -> None:
        """Remove them."""
        self.alive = False
        self._calls.session.close()


class Ensemble:
    """The shared state, and the access of workers, runners and operators. That of leaders is `store`."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.cluster = DictCluster(lambda: int((START + timedelta(seconds=time.s)).timestamp() * 1000))
        self.on_slots: Callable[[AttemptId, Slots, Slots], None] = lambda _attempt, _before, _after: None
        self._sessions: dict[Session, Callable[[], None]] = {}
        self._board = self.board()

    def board(self) -> TreeAttemptBoard:
        """The board, for another process."""
        return TreeAttemptBoard(DictCalls(Always(self.cluster.store)), ROOT)

    @property
    def settling(self) -> AttemptBoard:
        """The board as a worker uses it when it ends attempts."""
        return cast("AttemptBoard", self)

    @property
    def world(self) -> World:
        """The stored records."""
        return self.cluster.world

    @property
    def available(self) -> bool:
        """True if it answers requests."""
        return self.cluster.available

    # -- sessions

    def open_session(
        self, connected: Callable[[], bool], on_end: Callable[[], None] = lambda: None
    ) -> Session:
        """Open a session for a process that is connected now."""
        session = Session(self.cluster, self.time.s, connected)
        self._sessions[session] = on_end
        return session

    def end_session(self, session: Session) -> None:
        """The process closed it, or died in a way that the server noticed."""
        on_end = self._sessions.pop(session, None)
        if on_end is not None:
            session.end()
            on_end()

    def tick(self) -> None:
        """Expire sessions without contact for too long; an unavailable ensemble expires none."""
        for session in tuple(self._sessions):
            if not self.available or session.connected():
                session.seen_s = self.time.s
            elif self.time.s - session.seen_s >= SESSION_S:
                self.end_session(session)

    # -- workers and runners

    def claim(self, attempt: AttemptId, claim: Claim) -> Claim:
        """Fill CLAIM if it is empty. Returns its content. Raises AttemptWithdrawnError."""
        with self._told(attempt):
            return self._board.claim(claim)

    def refuse(self, claim: Claim, end: End) -> Claim:
        """Fill CLAIM and END if CLAIM is empty. Returns its content. Raises AttemptWithdrawnError."""
        with self._told(AttemptId.parse(end.attempt)):
            return self._board.refuse(claim, end)

    def end(self, end: End) -> End:
        """Fill END if it is empty. Returns its content. Raises AttemptWithdrawnError."""
        with self._told(AttemptId.parse(end.attempt)):
            return self._board.end(end)

    def read(self, attempt: AttemptId) -> Slots:
        """The slots of an attempt; empty if it does not exist."""
        return self.world.slots.get(attempt, _EMPTY)

    def report(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Write into the heartbeat of another process."""
        self._board.report(attempt, progress)

    def note_submitted(self, attempt: AttemptId, driver: ClusterDriver) -> None:
        """Note that a driver was submitted to a cluster. Raises AttemptWithdrawnError."""
        self._board.note_submitted(attempt, driver)

    @contextmanager
    def _told(self, attempt: AttemptId) -> Iterator[None]:
        """Report what a request has changed."""
        before = self.read(attempt)
        yield
        self.on_slots(attempt, before, self.read(attempt))

    # -- commands

    def submit(self, queued: QueuedCommand) -> None:
        """Queue a command."""
        self.cluster.change(commands={**self.world.commands, queued.id: queued})

    def delete_command(self, command: CommandId) -> None:
        """An operator deletes a command's node by hand."""
        commands = {key: queued for key, queued in self.world.commands.items() if key != command}
        self.cluster.change(commands=commands)
