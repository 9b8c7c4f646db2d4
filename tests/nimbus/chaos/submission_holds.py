"""Proxies for gRPC and for ZooKeeper that hold the request at which a submission is at a point."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc

from tests.fault_proxy.frames import Op, Splitter, read_reply_xid, read_request
from tests.nimbus.chaos.submission_points import MANAGER, STORE, Stops

_PATH = re.compile(rb"/[^\0\"\s]+")
_CALLS = 32
_CONNECT_S = 10.0


class HoldingGrpc(grpc.GenericRpcHandler):
    """Forwards calls of all services to one server. The name of a request is its method: `Config`.

    Threads: those of gRPC, and one for each call.
    """

    def __init__(self, upstream: str, stops: Stops) -> None:
        self._stops = stops
        self._channel = grpc.insecure_channel(upstream)
        self._calls = ThreadPoolExecutor(_CALLS, "proxy-grpc")
        self._server = grpc.server(self._calls, (self,))
        self.port = self._server.add_insecure_port("localhost:0")
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """See `grpc.GenericRpcHandler`. It handles every call as a call with streams."""
        method = details.method

        def pass_on(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._pass_on(method, requests, context)

        return grpc.stream_stream_rpc_method_handler(pass_on)

    def _pass_on(
        self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        name = method.rpartition("/")[2]
        self._stops.pass_by(MANAGER, name, answered=False)
        told = [(key, value) for key, value in context.invocation_metadata() if key != "user-agent"]
        call: Any = self._channel.stream_stream(method)(requests, metadata=told)
        context.add_callback(call.cancel)
        try:
            for answer in call:
                self._stops.pass_by(MANAGER, name, answered=True)
                yield answer
        except grpc.RpcError:
            context.set_trailing_metadata(call.trailing_metadata() or ())
            context.abort(call.code(), call.details())

    def close(self) -> None:
        """End it, with all its calls."""
        self._server.stop(0).wait(60)
        self._channel.close()
        self._calls.shutdown()


class HoldingZooKeeper:
    """Forwards connections to one server. The name of a request is its opcode with its paths.

    Threads: one that accepts connections, and two for each connection.
    """

    def __init__(self, upstream: str, stops: Stops) -> None:
        host, _, port = upstream.partition(":")
        self._upstream, self._stops = (host, int(port)), stops
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="proxy-store")]
        self._threads[0].start()

    def close(self) -> None:
        """End it, with all its connections."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(60)
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._upstream, _CONNECT_S)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._open += [client, server]
                link = _Link(client, server, self._stops)
                for passing in (link.pass_requests, link.pass_replies):
                    self._threads.append(threading.Thread(target=passing, name="proxy-store"))
                    self._threads[-1].start()


class _Link:
    """One connection."""

    def __init__(self, client: socket.socket, server: socket.socket, stops: Stops) -> None:
        self._client, self._server, self._stops = client, server, stops
        self._asked: dict[int, str] = {}
        """Unanswered requests, by xid."""

    def pass_requests(self) -> None:
        for number, frame in enumerate(_frames(self._client)):
            request = read_request(frame, connection=0, first=number == 0)
            op = request.op.name if isinstance(request.op, Op) else str(request.op)
            words = " ".join([op, *(path.decode(errors="replace") for path in _PATH.findall(frame))])
            self._asked[request.xid] = words
            self._stops.pass_by(STORE, words, answered=False)
            if not _sent(self._server, frame):
                break
        _end(self._client, self._server)

    def pass_replies(self) -> None:
        for number, frame in enumerate(_frames(self._server)):
            words = self._asked.pop(read_reply_xid(frame, first=number == 0), "")
            self._stops.pass_by(STORE, words, answered=True)
            if not _sent(self._client, frame):
                break
        _end(self._client, self._server)


def _frames(source: socket.socket) -> Iterator[bytes]:
    splitter = Splitter()
    with suppress(OSError):
        while data := source.recv(1 << 16):
            yield from splitter.feed(data)


def _sent(target: socket.socket, frame: bytes) -> bool:
    try:
        target.sendall(frame)
    except OSError:
        return False
    return True


def _end(*ends: socket.socket) -> None:
    for one in ends:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
