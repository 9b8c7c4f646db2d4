"""A simulated ensemble: one leader, followers with delayed data, and their faults.

It has these properties of a real one: writes go through the leader and reads do not; a follower collects the
signs of life of its clients and forwards them every half tick, not with the writes; a follower that is
isolated from the leader still answers reads and pings for some time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from leader.errors import LeaderError, ZooKeeperUnavailableError
from leader.protocol import requests as rq
from tests.leader.election.world import Channel, World
from tests.leader.expiring_zookeeper import Commit, ExpiringZooKeeper


class SessionMovedError(ZooKeeperUnavailableError):
    """The session has moved to another server, so this connection is closed."""

    code = "session_moved"


class Client(Protocol):
    """The other end of a connection."""

    def replied(self, xid: int, answer: Any, error: LeaderError | None) -> None:
        """Called with the answer to a request."""

    def ponged(self) -> None:
        """Called with the answer to a ping."""

    def fired(self, path: str, gone: bool) -> None:
        """Called when a watch fires."""

    def closed(self) -> None:
        """Called when the server has cut the connection."""


class ServerConnection:
    """The server's end of a client's connection. Requests are answered in order."""

    def __init__(self, server: Server, session_id: int, to_client: Channel, client: Client) -> None:
        self.server, self.session_id, self._client = server, session_id, client
        self.to_client = to_client
        self.open = True
        self.cut_after: int | None = None
        """Execute this request, but cut the connection instead of answering."""
        self._waiting: deque[tuple[int, rq.Request]] = deque()
        self._busy = False

    def ping(self) -> None:
        """Receive a sign of life."""
        if self.open:
            self.server.touched(self.session_id)
            self.to_client.send(self._client.ponged)

    def receive(self, xid: int, request: rq.Request) -> None:
        """Receive a request."""
        if self.open:
            self.server.touched(self.session_id)
            self._waiting.append((xid, request))
            self._pump()

    def done(self, xid: int, answer: Any, error: LeaderError | None) -> None:
        """Called when a write was executed or refused."""
        self._busy = False
        if not self.open:
            return
        if self.cut_after == xid or isinstance(error, SessionMovedError):
            self.close()
            return
        self.to_client.send(self._client.replied, xid, answer, error)
        self._pump()

    def fired(self, path: str, gone: bool) -> None:
        """Called when a watch of this client fires."""
        self.to_client.send(self._client.fired, path, gone)

    def close(self) -> None:
        """Cut the connection. Data on the way to the client still arrive."""
        if self.open:
            self.forget()
            self.to_client.send(self._client.closed)

    def forget(self) -> None:
        """Called when the client has cut the connection."""
        self.open = False
        self.server.left(self)

    def _pump(self) -> None:
        while self._waiting and not self._busy and self.open:
            xid, request = self._waiting.popleft()
            if not isinstance(request, rq.Read):
                self._busy = True
                self.server.write(self, xid, request)
                continue
            try:
                self.done(xid, self.server.read(request, self), None)
            except LeaderError as exc:
                self.done(xid, None, exc)


class Server:
    """One server. Number 0 leads the ensemble, so it has the data without delay."""

    def __init__(self, world: World, ensemble: Ensemble, number: int) -> None:
        self._world, self._ensemble, self.number = world, ensemble, number
        self.connections: list[ServerConnection] = []
        self._touched: dict[int, None] = {}
        self.up = False
        self.rise()

    def rise(self) -> None:
        """Join the ensemble, with the current data."""
        self.up, self.isolated = True, False
        zookeeper = self._ensemble.zookeeper
        self.tree = zookeeper.tree if self.number == 0 else zookeeper.tree.copy()
        self._to_leader = Channel(self._world, self._hop)
        self._from_leader = Channel(self._world, self._hop)
        self._touched.clear()

    def fall(self) -> None:
        """Stop. Data on the way are lost."""
        self.up = False
        self._to_leader.cut()
        self._from_leader.cut()
        for connection in list(self.connections):
            connection.close()

    def isolate(self) -> None:
        """Isolate it from the leader. It notices this after some time, and stops."""
        if self.number == 0 or self.isolated or not self.up:
            return
        self.isolated = True
        self._to_leader.hold()
        self._from_leader.hold()
        self._world.clock.call_later(self._ensemble.sync_limit, self._give_up)

    def join(self) -> None:
        """Undo `isolate`."""
        if not self.up:
            if self._ensemble.serving:
                self.rise()
        elif self.isolated:
            self.isolated = False
            self._to_leader.release()
            self._from_leader.release()

    def accept(self, session_id: int | None, welcome: Callable[[Server, int | None], None]) -> None:
        """A client requests a new session, or its own. `welcome` gets None if that one has expired."""

        def at_leader() -> None:
            found = self._ensemble.open(session_id, self)
            self._back(welcome, self, found)

        self._forth(at_leader)

    def connected(self, connection: ServerConnection) -> None:
        """Called when a client is connected. Cuts an older connection of the same session."""
        for other in [one for one in self.connections if one.session_id == connection.session_id]:
            other.close()
        self.connections.append(connection)

    def left(self, connection: ServerConnection) -> None:
        """Called when a client is no longer connected."""
        self.tree.forget(connection.fired)
        if connection in self.connections:
            self.connections.remove(connection)

    def touched(self, session_id: int) -> None:
        """Called at a sign of life of a session."""
        if self.number == 0:
            self._ensemble.zookeeper.touch(session_id)
            return
        if not self._touched:
            half = self._ensemble.zookeeper.tick / 2
            self._world.clock.call_at((self._world.clock.now // half + 1) * half, self._pass_on)
        self._touched[session_id] = None

    def read(self, request: rq.Read, connection: ServerConnection) -> Any:
        """Answer from the server's own copy."""
        if isinstance(request, rq.GetEach):
            return tuple(self._read_one(path, connection) for path in request.paths)
        self._ensemble.permit(request)
        return self.tree.read(request, connection.fired)

    def _read_one(self, path: str, connection: ServerConnection) -> Any:
        try:
            return self.read(rq.Get(path), connection)
        except rq.RequestRefusedError as exc:
            return exc

    def write(self, connection: ServerConnection, xid: int, request: rq.Write) -> None:
        """Let the leader execute a write."""

        def at_leader() -> None:
            answer, error = None, None
            try:
                answer = self._ensemble.write(request, connection.session_id, self)
            except LeaderError as exc:
                error = exc
            self._back(connection.done, xid, answer, error)

        self._forth(at_leader)

    def committed(self, commit: Commit) -> None:
        """Called when the leader has committed a transaction, which arrives here later."""
        self._back(self._apply, commit)

    def _apply(self, commit: Commit) -> None:
        if self.number:
            self.tree.apply(commit.changes)
        if commit.closed is not None:
            for connection in [one for one in self.connections if one.session_id == commit.closed]:
                connection.close()

    def _pass_on(self) -> None:
        touched, self._touched = list(self._touched), {}
        if self.up:
            self._to_leader.send(self._ensemble.touched, touched)

    def _forth(self, action: Callable[[], None]) -> None:
        if self.number == 0:
            action()
        else:
            self._to_leader.send(action)

    def _back(self, action: Callable[..., None], *args: Any) -> None:
        if self.number == 0:
            action(*args)
        else:
            self._from_leader.send(action, *args)

    def _give_up(self) -> None:
        if self.isolated and self.up:
            if self._world.telling:
                self._world.tell(f"server {self.number}", "stops, because it has lost its leader")
            self.fall()

    def _hop(self) -> timedelta:
        return self._world.between(0.0002, 0.003)


class Ensemble:
    """All servers, and their common data."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.zookeeper = ExpiringZooKeeper(world.clock, tick=world.settings.tick)
        self.zookeeper.subscribe(self._committed)
        self.serving = True
        self.sync_limit = world.settings.tick * world.rng.choice(world.settings.sync_ticks)
        self.witness: Callable[[rq.Request, int, int], None] = lambda _request, _session_id, _zxid: None
        """Called with each accepted write of a client: the request, its session, and its transaction id."""
        self.forgotten: set[int] = set()
        """Sessions that will be replaced silently by new ones when they reconnect."""
        self._where: dict[int, Server] = {}
        self.forbidden: str | None = None
        """No client has permissions at or below this path, because the access lists were changed."""
        size = world.rng.choice(world.settings.servers)
        self.servers = [Server(world, self, number) for number in range(size)]
        self._tick()

    def open(self, session_id: int | None, server: Server) -> int | None:
        """At the leader: create a session, or move an existing one to another server."""
        if session_id is None or session_id in self.forgotten:
            session_id = self.zookeeper.new_session(self._world.session_timeout)
        elif not self.zookeeper.touch(session_id):
            return None
        self._where[session_id] = server
        return session_id

    def write(self, request: rq.Write, session_id: int, server: Server) -> Any:
        """At the leader: execute a write that came through `server`."""
        if self._where.get(session_id) is not server:
            raise SessionMovedError("the session has moved to another server")
        self.permit(request)
        answer = self.zookeeper.write(request, session_id)
        self.witness(request, session_id, self.zookeeper.zxid)
        return answer

    def permit(self, request: rq.Write | rq.GetChildren | rq.Exists | rq.Get) -> None:
        """Refuse forbidden requests."""
        if self.forbidden is None:
            return
        if not isinstance(request, rq.Transaction):
            if request.path.startswith(self.forbidden):
                raise rq.NotPermittedError(request.path)
            return
        for index, operation in enumerate(request.operations):
            if operation.path.startswith(self.forbidden):
                raise rq.TransactionFailedError(index, rq.NotPermittedError(operation.path))

    def touched(self, session_ids: list[int]) -> None:
        """At the leader: signs of life that a follower collected."""
        for session_id in session_ids:
            self.zookeeper.touch(session_id)

    def fall(self) -> None:
        """Lose the quorum."""
        self.serving = False
        for server in self.servers:
            server.fall()

    def rise(self, *, wiped: bool = False) -> None:
        """Form a quorum again, with the earlier data or without them."""
        if wiped:
            self.zookeeper.wipe()
            self._where.clear()
        else:
            self.zookeeper.start_anew()
        self.serving = True
        for server in self.servers:
            server.rise()

    def _committed(self, commit: Commit) -> None:
        for server in self.servers:
            if server.up:
                server.committed(commit)

    def _tick(self) -> None:
        if self.serving:
            self.zookeeper.expire_due()
        tick = self.zookeeper.tick
        self._world.clock.call_at((self._world.clock.now // tick + 1) * tick, self._tick)
