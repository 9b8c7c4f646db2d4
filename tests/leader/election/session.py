"""A participant's ZooKeeper session over a simulated link. It simulates kazoo and its threads.

The code that keeps the session's state is the real one. This module only calls it like a kazoo client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from leader.errors import LeaderError, ZooKeeperUnavailableError
from leader.protocol import requests as rq
from leader.zookeeper.states import Listener, SessionStates
from tests.leader.election.ensemble import Ensemble, Server, ServerConnection
from tests.leader.election.world import ZERO, Channel, World

Reply = Callable[[Any, LeaderError | None], None]


class Host(Protocol):
    """The process that has the session."""

    name: str

    def clock(self) -> timedelta:
        """The process's own clock."""
        ...

    def run(self, action: Callable[..., None], *args: Any) -> None:
        """Do something when the process runs: at once, after a pause, or never if it has died."""
        ...


@dataclass(slots=True)
class Weather:
    """The state of a participant's link. `slow` is added to the travel time of each message."""

    up_held: bool = False
    down_held: bool = False
    slow: timedelta = ZERO


@dataclass(frozen=True, slots=True)
class Trap:
    """Cut the connection at the next request of these kinds: before it is executed, or after."""

    kinds: tuple[type, ...]
    after: bool


class SimulatedSession:
    """See the module, and `leader.core.lease.SessionView`."""

    def __init__(self, world: World, ensemble: Ensemble, host: Host) -> None:
        self._world, self._ensemble, self._host = world, ensemble, host
        self._states = SessionStates(world.session_timeout)
        self.liveness = self._states.liveness
        self._asked_at = ZERO
        self.negotiated_timeout = world.session_timeout
        self.weather = Weather()
        self.trap: Trap | None = None
        self.on_watch: Callable[[str, bool], None] = lambda _path, _gone: None
        self._known_id: int | None = None  # the session that kazoo would request
        self._connection: ServerConnection | None = None
        self._up: Channel | None = None
        self._channels: list[Channel] = []
        self._attempt = 0
        self._pinged = False
        self._xid = 0
        self._replies: dict[int, Reply] = {}
        self._dead = False
        self._later(world.between(0, 0.05), self._connect, self._attempt)

    # --- used by other modules --------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """See `SessionView`."""
        return self.liveness.facts.is_connected

    @property
    def session_id(self) -> int | None:
        """See `SessionView`."""
        return self.liveness.facts.session_id

    def add_listener(self, enqueue: Listener) -> None:
        """Call a listener at each change of state."""
        self._states.add(enqueue)

    @property
    def connection(self) -> ServerConnection | None:
        """The server's end of the connection, for faults."""
        return self._connection

    @property
    def delivered_by(self) -> timedelta:
        """The time at which all current messages have arrived, in both directions, without delays."""
        return max((channel.empty_by for channel in self._channels), default=ZERO)

    def ask(self, request: rq.Request, reply: Reply) -> None:
        """Send a request. `reply` gets the answer, or an error when the broken connection is detected."""
        connection, up, trap = self._connection, self._up, self.trap
        if connection is None or up is None:
            reply(None, ZooKeeperUnavailableError("there is no connection to ZooKeeper"))
            return
        self._xid += 1
        self._replies[self._xid] = reply
        if trap is not None and isinstance(request, trap.kinds):
            self.trap = None
            if not trap.after:
                connection.close()
                return
            connection.cut_after = self._xid
        up.send(connection.receive, self._xid, request)

    def reconnect(self) -> None:
        """Cut the connection like `shutdown` of the socket: kazoo's thread notices at once."""
        if self._connection is not None:
            self._later(self._world.between(0, 0.001), self._dropped, self._attempt)

    def die(self, *, power: bool) -> None:
        """End the process. Sent messages still arrive, unless the power failed."""
        self._dead = True
        if power:
            for channel in self._channels:
                channel.cut()
        elif self._connection is not None and self._up is not None:
            self._up.send(self._connection.forget)

    def leave(self) -> None:
        """Close the session, like a process that ends normally."""
        connection, up = self._connection, self._up
        self._dead = True
        if connection is not None and up is not None:
            up.send(self._ensemble.zookeeper.close_session, connection.session_id)

    def changed_weather(self) -> None:
        """Called when `weather` has changed."""
        for number, channel in enumerate(self._channels):
            held = self.weather.up_held if number % 2 == 0 else self.weather.down_held
            (channel.hold if held else channel.release)()

    # --- connecting -------------------------------------------------------------------------------

    def _connect(self, attempt: int) -> None:
        if attempt != self._attempt or self._dead:
            return
        self._asked_at = self._host.clock()
        server = self._world.rng.choice(self._ensemble.servers)
        self._channels = self._channels[-4:]  # messages of older connections may still be on the way
        up = Channel(self._world, self._delay, held=self.weather.up_held)
        down = Channel(self._world, self._delay, held=self.weather.down_held)
        self._channels += [up, down]

        def welcome(at: Server, session_id: int | None) -> None:
            if session_id is None:
                down.send(self._run, self._expired, attempt)
                return
            connection = ServerConnection(at, session_id, down, _Filter(self, attempt))
            at.connected(connection)
            down.send(self._run, self._connected, attempt, connection, up)

        def knock() -> None:
            if server.up:
                server.accept(self._known_id, welcome)
            else:
                down.send(self._run, self._dropped, attempt)

        up.send(knock)
        self._later(self.negotiated_timeout / 3, self._timed_out, attempt)

    def _connected(self, attempt: int, connection: ServerConnection, up: Channel) -> None:
        if attempt != self._attempt or self._dead:
            up.send(connection.forget)
            return
        self._connection, self._up, self._pinged = connection, up, False
        self._known_id = connection.session_id
        if self._world.telling:
            session = f"session {connection.session_id:x}"
            self._world.tell(self._host.name, f"connected to server {connection.server.number}, {session}")
        self._states.connected(connection.session_id, self._asked_at, self.negotiated_timeout)
        self._later(self._ping_pause(), self._ping, attempt)

    def _expired(self, attempt: int) -> None:
        if attempt != self._attempt or self._dead:
            return
        if self._world.telling:
            self._world.tell(self._host.name, "learns that its session has expired")
        self._known_id = None
        self._states.lost()
        self._again()

    def _timed_out(self, attempt: int) -> None:
        if attempt == self._attempt and self._connection is None:
            self._again()

    def _dropped(self, attempt: int) -> None:
        """Called when the loss of the connection is detected."""
        if attempt != self._attempt or self._dead:
            return
        connection, up = self._connection, self._up
        self._connection = self._up = None
        replies, self._replies = self._replies, {}
        self._again()
        if connection is None or up is None:
            return
        up.send(connection.forget)
        if self._world.telling:
            self._world.tell(self._host.name, "detects that its connection broke")
        self._states.suspended()
        for reply in replies.values():
            reply(None, ZooKeeperUnavailableError("the connection broke; the outcome is unknown"))

    def _again(self) -> None:
        self._attempt += 1
        self._later(self._world.between(0.02, 0.6), self._connect, self._attempt)

    # --- signs of life ----------------------------------------------------------------------------

    def _ping(self, attempt: int) -> None:
        if attempt != self._attempt or self._connection is None or self._up is None:
            return
        if self._pinged:
            self._dropped(attempt)  # no answer during a whole pause
            return
        self._pinged = True
        self._up.send(self._connection.ping)
        self._later(self._ping_pause(), self._ping, attempt)

    def ponged(self) -> None:
        """Called when a ping was answered."""
        self._pinged = False

    def _ping_pause(self) -> timedelta:
        return self.negotiated_timeout / 3 - self._world.between(0.01, 0.4)

    # --- arriving messages ------------------------------------------------------------------------

    def replied(self, xid: int, answer: Any, error: LeaderError | None) -> None:
        """Receive an answer."""
        reply = self._replies.pop(xid, None)
        if reply is not None:
            reply(answer, error)

    def _run(self, action: Callable[..., None], *args: Any) -> None:
        self._host.run(action, *args)

    def _later(self, delay: timedelta, action: Callable[..., None], *args: Any) -> None:
        self._world.clock.call_later(delay, self._host.run, action, *args)

    def _delay(self) -> timedelta:
        slow = self.weather.slow
        delay = self._world.between(0.0002, 0.004)
        return delay + slow * self._world.rng.random() if slow else delay

    def of_attempt(self, attempt: int, action: Callable[..., None], *args: Any) -> None:
        """Handle a message of a connection, if it is the current one."""
        if attempt == self._attempt and not self._dead:
            action(*args)


class _Filter:
    """Receives the messages of one connection, and drops them once there is a newer connection."""

    def __init__(self, session: SimulatedSession, attempt: int) -> None:
        self._session, self._attempt = session, attempt

    def replied(self, xid: int, answer: Any, error: LeaderError | None) -> None:
        self._pass(self._session.replied, xid, answer, error)

    def ponged(self) -> None:
        self._pass(self._session.ponged)

    def fired(self, path: str, gone: bool) -> None:
        self._pass(self._session.on_watch, path, gone)

    def closed(self) -> None:
        self._pass(self._session._dropped, self._attempt)

    def _pass(self, action: Callable[..., None], *args: Any) -> None:
        self._session._run(self._session.of_attempt, self._attempt, action, *args)
