"""One client's connection through a proxy, and the server's end of it. The proxy's thread only."""

from __future__ import annotations

import socket
from collections import Counter, deque
from dataclasses import dataclass, field

from tests.fault_proxy.faults import Direction, Flow, Trap, Weather
from tests.fault_proxy.frames import Splitter, read_reply_xid, read_request

_CHUNK = 65_536


@dataclass(slots=True)
class Counts:
    """The forwarded requests and bytes of a proxy so far. The proxy's thread only."""

    requests: Counter[int] = field(default_factory=Counter)
    sent: Counter[Direction] = field(default_factory=Counter)
    connections: int = 0


class Cut(Exception):  # noqa: N818 - not an error: a side that ended, or a fault that was asked for
    """The link must be cut now, and `trap` notified after that."""

    def __init__(self, trap: Trap | None = None) -> None:
        super().__init__()
        self.trap = trap


class Pipe:
    """One direction of a link: arrived bytes in order, with the times at which they may be sent."""

    def __init__(self, way: Direction, source: socket.socket, sink: socket.socket, *, framed: bool) -> None:
        self.way, self.source, self.sink = way, source, sink
        self.splitter = Splitter(framed=framed)
        self.first = True
        """No frame has arrived yet."""
        self.ended = False
        """The source has ended."""
        self.told = False
        """The sink was informed of that."""
        self.lossy = False
        """Bytes were dropped, so the other side cannot understand the rest."""
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._ready = bytearray()

    def put(self, due: float, data: bytes) -> None:
        """Add bytes, which may be sent at `due`."""
        self._waiting.append((due, data))

    def due(self, now: float, *, open_: bool) -> float | None:
        """Prepare due bytes for sending, and return when more are due. While the way is closed, none are."""
        if not open_:
            return None
        while self._waiting and self._waiting[0][0] <= now:
            self._ready += self._waiting.popleft()[1]
        return self._waiting[0][0] if self._waiting else None

    @property
    def blocked(self) -> bool:
        """Whether there are bytes for the sink."""
        return bool(self._ready)

    def flush(self) -> int:
        """Send as many bytes as the sink accepts. Returns how many. Raises OSError, once."""
        try:
            sent = self.sink.send(self._ready) if self._ready else 0
        except BlockingIOError:
            return 0
        except OSError:
            self._ready.clear()
            self.lossy = True
            raise
        del self._ready[:sent]
        return sent

    def pass_the_end_on(self) -> None:
        """If the source has ended and all its bytes were sent, end the sink's side, too."""
        if self.ended and not self.told and not self._waiting and not self._ready:
            self.told = True
            self.sink.shutdown(socket.SHUT_WR)


class Link:
    """Two sockets, and the data between them.

    Args:
        number: Counted from 1.
        client: The accepted socket.
        server: The connected socket.
        framed: Whether they use ZooKeeper's protocol.
        weather: The weather of the proxy.
        traps: The traps of the proxy.
        counts: The counts of the proxy.
    """

    def __init__(
        self,
        number: int,
        client: socket.socket,
        server: socket.socket,
        *,
        framed: bool,
        weather: Weather,
        traps: list[Trap],
        counts: Counts,
    ) -> None:
        self.number, self.client, self.server = number, client, server
        self._weather, self._traps, self._counts = weather, traps, counts
        self._up = Pipe(Direction.TO_SERVER, client, server, framed=framed)
        self._down = Pipe(Direction.TO_CLIENT, server, client, framed=framed)
        self._awaited: dict[int, Trap] = {}
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Both ends."""
        return self.client, self.server

    @property
    def lossy(self) -> bool:
        """Whether bytes of it were dropped."""
        return self._up.lossy or self._down.lossy

    def wants(self, sock: socket.socket) -> tuple[bool, bool]:
        """Whether to read from `sock`, and whether to write to it."""
        source, sink = (self._up, self._down) if sock is self.client else (self._down, self._up)
        return not source.ended, sink.blocked

    def receive(self, sock: socket.socket, now: float) -> None:
        """Read arrived bytes. Raises Cut."""
        pipe = self._up if sock is self.client else self._down
        flow = self._weather.flow_of(pipe.way)
        try:
            data = sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as exc:
            if flow is Flow.PASS:
                raise Cut from exc
            data = b""
        if not data:
            pipe.ended = True
        if flow is Flow.SWALLOW:
            pipe.lossy = True
            return
        due = now + self._weather.delay_of(pipe.way)
        for piece in pipe.splitter.feed(data):
            self._watch_for_traps(pipe, piece, now)
            pipe.put(due, piece)

    def pump(self, now: float) -> float | None:
        """Send due bytes, and return when more are due. Raises Cut if the receiver has closed."""
        moments = []
        for pipe in (self._up, self._down):
            passing = self._weather.flow_of(pipe.way) is Flow.PASS
            moments.append(pipe.due(now, open_=passing))
            try:
                self._counts.sent[pipe.way] += pipe.flush()
                if passing:
                    pipe.pass_the_end_on()
            except OSError as exc:
                if passing:
                    raise Cut from exc
        if self._up.told and self._down.told:
            raise Cut
        return min((moment for moment in moments if moment is not None), default=None)

    def close(self) -> None:
        """Cut the link."""
        for sock in self.sockets:
            sock.close()

    def _watch_for_traps(self, pipe: Pipe, piece: bytes, now: float) -> None:
        if not pipe.splitter.framed:
            return
        first, pipe.first = pipe.first, False
        if pipe is self._down:
            self._spring(self._awaited.pop(read_reply_xid(piece, first=first), None), now)
            return
        request = read_request(piece, connection=self.number, first=first)
        self._counts.requests[request.op] += 1
        for trap in [trap for trap in self._traps if trap.catches(request)]:
            self._traps.remove(trap)
            if not trap.after:
                self._spring(trap, now)
            self._awaited[request.xid] = trap

    def _spring(self, trap: Trap | None, now: float) -> None:
        if trap is not None:
            self.pump(now)  # so that earlier bytes have been sent
            raise Cut(trap)
