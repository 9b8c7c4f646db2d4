"""A proxy between a client and a real S3 server on loopback, which injects faults on demand.

    with FaultProxy(server_url, access_key=..., secret_key=...) as proxy:
        store = S3ObjectStore(S3Config(endpoint_url=proxy.endpoint_url, ...))
        proxy.rule = lambda request: Truncate(100) if request.gets and request.count == 1 else None

Plain HTTP, only on loopback; one thread, named `s3-proxy`. Signatures stay valid, because the header Host is
not changed. Only `WrongRange` and `IgnoreRange` need the keys, because they request other bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from blobsync.s3.messages import Credentials, GetSigner
from tests.s3_proxy.faults import (
    Fail,
    Fault,
    IgnoreRange,
    InterimAnswers,
    NoHttp,
    OtherWords,
    ProxiedRequest,
    Redirect,
    Reset,
    Rule,
    SlowBody,
    StaleListing,
    Stall,
    Trickle,
    Truncate,
    WrongBytes,
    WrongRange,
    no_fault,
)
from tests.s3_proxy.wire import Answer, Message, read_answer, read_message

_LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 64 << 10
_PAUSE_S = 0.01
_RST = struct.pack("ii", 1, 0)  # SO_LINGER with time 0: close sends RST, not FIN


class FaultProxy:
    """See the module.

    Args:
        upstream: `http://127.0.0.1:<port>` of the server.
        rule: Chooses faults; may be replaced at any time.
        access_key: Access key of the server, for faults of ranges.
        secret_key: Secret key of the server.
        region: Region of the server.

    Attributes:
        rule: The current rule.
        requests: Number of requests for each (method, key).
        body_bytes: Sent bytes of answers' bodies for each key.
        uploaded_bytes: Received bytes of requests' bodies for each key.
        faults: Number of injected faults of each kind, by the name of its class.
    """

    def __init__(
        self,
        upstream: str,
        rule: Rule = no_fault,
        *,
        access_key: str = "",
        secret_key: str = "",
        region: str = "us-east-1",
    ) -> None:
        where = urlsplit(upstream)
        self._host, self._port = where.hostname or _LOOPBACK, where.port or 80
        self._keys = Credentials(access_key, secret_key)
        self._signer = GetSigner(f"{self._host}:{self._port}", region)
        self.rule: Rule = rule
        self.requests: Counter[tuple[str, str]] = Counter()
        self.body_bytes: Counter[str] = Counter()
        self.uploaded_bytes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._listings: dict[str, Answer] = {}
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._socket = socket.socket()
        self._thread = threading.Thread(target=self._run, name="s3-proxy", daemon=True)

    @property
    def endpoint_url(self) -> str:
        """The URL for clients."""
        return f"http://{_LOOPBACK}:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        """Serve until `stop`."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((_LOOPBACK, 0))
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Close all connections, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, sock=self._socket))
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            upstream = await asyncio.open_connection(self._host, self._port)
            while (message := await read_message(reader, writer)) is not None:
                if not await self._one(message, upstream, writer):
                    break
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass  # either side closed the connection
        finally:
            for each in (writer, upstream[1] if upstream else writer):
                with contextlib.suppress(OSError, RuntimeError):
                    each.close()

    async def _one(
        self,
        message: Message,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Serve one request. Returns whether the connection stays open."""
        request = self._seen(message)
        fault = self.rule(request)
        if fault is not None:
            self.faults[type(fault).__name__] += 1
        match fault:
            case Fail(status=status, code=code):
                await self._send(writer, request, _error(status, code, request), None)
                return True
            case Redirect(status=status, location=location):
                moved = Answer.made(status, "Moved", {"location": location}, b"")
                await self._send(writer, request, moved, None)
                return True
            case OtherWords(body=body):
                other = Answer.made(200, "OK", {"content-type": "text/html"}, body)
                await self._send(writer, request, other, None)
                return True
            case InterimAnswers():
                while True:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(_PAUSE_S)
            case NoHttp():
                writer.write(b"\x16\x03\x01\x00 this is no HTTP\r\n\r\n")
                await writer.drain()
                return False
            case _:
                answer = await self._answer(message, request, upstream, fault)
                return await self._send(writer, request, answer, fault)

    def _seen(self, message: Message) -> ProxiedRequest:
        path, _, query = message.target.partition("?")
        _, bucket, *rest = [*path.split("/", 2), ""]
        key = unquote(rest[0])
        self.requests[message.method, key] += 1
        self.uploaded_bytes[key] += len(message.body)
        first, last = message.range
        return ProxiedRequest(
            method=message.method,
            bucket=bucket,
            key=key,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            start=first,
            end=last,
            count=self.requests[message.method, key],
            headers=message.headers,
        )

    async def _answer(
        self,
        message: Message,
        request: ProxiedRequest,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        fault: Fault | None,
    ) -> Answer:
        """The server's answer, to this request or to the request that the fault sends instead."""
        sent = message.raw
        if request.start is not None and isinstance(fault, WrongRange | IgnoreRange):
            sent = self._other_question(message, request, fault)
        reader, writer = upstream
        writer.write(sent)
        await writer.drain()
        answer = await read_answer(reader, message.method)
        if isinstance(fault, WrongRange) and not fault.says_so and request.start is not None:
            end = request.start + len(answer.body) - 1
            total = answer.headers.get("content-range", "").rpartition("/")[2]
            answer = answer.with_header("content-range", f"bytes {request.start}-{end}/{total}")
        if request.lists:
            first = self._listings.setdefault(message.target, answer)
            return first if isinstance(fault, StaleListing) else answer
        return answer

    def _other_question(
        self, message: Message, request: ProxiedRequest, fault: WrongRange | IgnoreRange
    ) -> bytes:
        wanted = None
        if isinstance(fault, WrongRange):
            end = "" if request.end is None else request.end + fault.shift_bytes
            wanted = f"bytes={(request.start or 0) + fault.shift_bytes}-{end}"
        return self._signer.request(message.target.partition("?")[0], wanted, self._keys, time.time())

    async def _send(
        self, writer: asyncio.StreamWriter, request: ProxiedRequest, answer: Answer, fault: Fault | None
    ) -> bool:
        """Send an answer with its fault. Returns whether the connection stays open."""
        if isinstance(fault, Reset) and fault.after_bytes is None:
            _reset(writer)
            return False
        body = answer.body
        if isinstance(fault, WrongBytes) and body:
            at = min(fault.at, len(body) - 1)
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        if isinstance(fault, Trickle):
            await _trickle(writer, answer.head + body, fault.pause_s)
            return True
        writer.write(answer.head)
        cut = len(body)
        if isinstance(fault, Truncate | Reset | Stall):
            cut = min(cut, fault.after_bytes or 0)
        await self._send_body(writer, request.key, body[:cut], fault)
        match fault:
            case Reset():
                _reset(writer)
                return False
            case Truncate():
                return False
            case Stall():
                await asyncio.Event().wait()  # until the proxy stops
            case _:
                pass  # has done its part
        return True

    async def _send_body(
        self, writer: asyncio.StreamWriter, key: str, body: bytes, fault: Fault | None
    ) -> None:
        size = _CHUNK_BYTES
        if isinstance(fault, SlowBody):
            size = max(1, int(fault.bytes_per_s * _PAUSE_S))
        for start in range(0, len(body), size):
            piece = body[start : start + size]
            writer.write(piece)
            await writer.drain()
            self.body_bytes[key] += len(piece)
            if isinstance(fault, SlowBody):
                await asyncio.sleep(_PAUSE_S)
        await writer.drain()


async def _trickle(writer: asyncio.StreamWriter, data: bytes, pause_s: float) -> None:
    for each in data:
        writer.write(bytes([each]))
        await writer.drain()
        await asyncio.sleep(pause_s)


def _error(status: int, code: str, request: ProxiedRequest) -> Answer:
    words = f"<Error><Code>{code}</Code><Message>made by the fault proxy</Message></Error>".encode()
    body = b"" if request.method == "HEAD" else words
    return Answer.made(status, code, {"content-type": "application/xml"}, body)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
    writer.transport.abort()
