"""The thread of a proxy: it accepts connections, forwards data, and runs calls between two rounds."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from tests.fault_proxy.faults import Trap, Weather
from tests.fault_proxy.link import Counts, Cut, Link

T = TypeVar("T")
Address = tuple[str, int]

_CONNECT_LIMIT_S = 1.0


class ProxyLoop:
    """See the module. Any thread may call `start`, `run` and `stop`; only its own thread calls the rest.

    Args:
        listener: A bound socket, which the caller closes.
        targets: Servers to which connections go, in turn.
        framed: Whether the connections use ZooKeeper's protocol.
    """

    def __init__(self, listener: socket.socket, targets: list[Address], *, framed: bool) -> None:
        self._listener, self._targets, self._framed = listener, targets, framed
        self.weather, self.counts = Weather(), Counts()
        self.traps: list[Trap] = []
        self.links: list[Link] = []
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # protects the end of the thread and new calls
        self._thread = threading.Thread(target=self._run, name="leader-fault-proxy", daemon=True)
        self._listening = True
        self._ended = False
        self.ran = False

    def start(self) -> None:
        """Start the thread."""
        self.ran = True
        self._listener.setblocking(False)
        self._ear.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._thread.start()

    def run(self, call: Callable[[], T]) -> T:
        """Run a call on the thread and wait for it; on the caller's thread if the thread does not run."""
        future: Future[T] = Future()
        with self._lock:
            elsewhere = self._thread.is_alive() and not self._ended
            if elsewhere and threading.current_thread() is not self._thread:
                self._calls.put((call, future))
                self._bell.send(b"!")
            else:
                future.set_result(call())
        return future.result()

    def stop(self) -> None:
        """End the thread, and cut all connections. Safe to repeat."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._bell.send(b"!")
        if self._thread.is_alive():
            self._thread.join()
        self.cut_all()
        for closing in (self._selector, self._bell, self._ear):
            closing.close()

    # --- calls ----------------------------------------------------------------------------------

    def cut_all(self) -> int:
        """Cut all connections."""
        count = len(self.links)
        for link in list(self.links):
            self._drop(link)
        return count

    def refuse(self) -> None:
        """Stop listening, but keep the port."""
        if self._listening:
            self._listening = False
            self._selector.unregister(self._listener)
            self._listener.shutdown(socket.SHUT_RD)

    def heal(self) -> None:
        """End all faults. Connections that lost bytes are cut, because they cannot continue."""
        self.traps.clear()
        self.weather.clear()
        for link in [link for link in self.links if link.lossy]:
            self._drop(link)
        if not self._listening:
            self._listening = True
            self._listener.listen()
            self._selector.register(self._listener, selectors.EVENT_READ)

    # --- the loop -------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_s: float | None = None
        try:
            while not self._stopping.is_set():
                for key, _ in self._selector.select(wait_s):
                    self._serve(key)
                self._do_calls()
                now = time.monotonic()
                moments = [self._pump(link, now) for link in list(self.links)]
                wait_s = min((max(moment - now, 0) for moment in moments if moment is not None), default=None)
        finally:
            with self._lock:
                self._ended = True
            self._do_calls()

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._ear:
            self._ear.recv(4096)
        elif key.data in self.links and isinstance(key.fileobj, socket.socket):
            link: Link = key.data
            try:
                if link.wants(key.fileobj)[0]:
                    link.receive(key.fileobj, time.monotonic())
            except Cut as cut:
                self._drop(link)
                if cut.trap is not None:
                    cut.trap.spring()

    def _do_calls(self) -> None:
        while True:
            try:
                call, future = self._calls.get_nowait()
            except Empty:
                return
            try:
                future.set_result(call())
            except BaseException as exc:  # noqa: BLE001 - raised to the caller, through the future
                future.set_exception(exc)

    def _pump(self, link: Link, now: float) -> float | None:
        try:
            moment = link.pump(now)
        except Cut:
            self._drop(link)
            return None
        for sock in link.sockets:
            self._watch(link, sock)
        return moment

    def _watch(self, link: Link, sock: socket.socket) -> None:
        reads, writes = link.wants(sock)
        events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
        known = self._selector.get_map().get(sock)
        if known is None and events:
            self._selector.register(sock, events, link)
        elif known is not None and not events:
            self._selector.unregister(sock)
        elif known is not None and known.events != events:
            self._selector.modify(sock, events, link)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # the client closed before it was accepted
        server = self._connect()
        if server is None:
            client.close()
            return
        self.counts.connections += 1
        number = self.counts.connections
        self.links.append(
            Link(
                number,
                client,
                server,
                framed=self._framed,
                weather=self.weather,
                traps=self.traps,
                counts=self.counts,
            )
        )

    def _connect(self) -> socket.socket | None:
        """Connect to the next server that accepts. It blocks this thread, so servers must be near."""
        for _ in self._targets:
            target = self._targets.pop(0)
            self._targets.append(target)
            try:
                return socket.create_connection(target, timeout=_CONNECT_LIMIT_S)
            except OSError:
                continue  # tests stop servers
        return None

    def _drop(self, link: Link) -> None:
        self.links.remove(link)
        known = self._selector.get_map()
        for sock in link.sockets:
            if sock.fileno() >= 0 and known is not None and sock in known:
                self._selector.unregister(sock)
        link.close()
