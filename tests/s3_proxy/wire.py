"""The part of HTTP that the fault proxy needs: whole messages, bodies in memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]*)")
_BODILESS = {204, 304}
_HOP_BY_HOP = {"transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True)
class Message:
    """A request.

    Attributes:
        method: Its HTTP method.
        target: Path and query, as sent.
        headers: Headers by lower-case name.
        body: The whole body.
        raw: The bytes to forward.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    raw: bytes

    @property
    def range(self) -> tuple[int | None, int | None]:
        """First and last requested byte."""
        found = _RANGE.fullmatch(self.headers.get("range", ""))
        if found is None:
            return None, None
        return int(found[1]), int(found[2]) if found[2] else None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its whole body.

    Attributes:
        start_line: Version, status and reason.
        headers: Headers by lower-case name.
        body: The body, not chunked.
    """

    start_line: str
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def made(cls, status: int, reason: str, headers: Mapping[str, str], body: bytes) -> Self:
        """An answer of the proxy itself."""
        return cls(f"HTTP/1.1 {status} {reason}", {**headers, "content-length": str(len(body))}, body)

    @property
    def head(self) -> bytes:
        """All bytes before the body."""
        return _head(self.start_line, self.headers)

    def with_header(self, name: str, value: str) -> Answer:
        """The same answer with one more or changed header."""
        return Answer(self.start_line, {**self.headers, name: value}, self.body)


async def read_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
    """Read a request; None: the client closed the connection."""
    try:
        start_line, headers = await _read_head(reader)
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = start_line.split(" ", 2)
    if headers.pop("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Message(method, target, headers, body, _head(start_line, headers) + body)


async def read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    """Read an answer to a request of `method`."""
    while True:
        start_line, headers = await _read_head(reader)
        status = int(start_line.split(" ", 2)[1])
        if status >= 200:
            break
    if method == "HEAD" or status in _BODILESS:
        return Answer(start_line, headers, b"")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunked(reader)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = b""
    kept = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
    return Answer(start_line, {**kept, "content-length": str(len(body))}, body)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return start_line, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return bytes(body)


def _head(start_line: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{start_line}\r\n{lines}\r\n".encode("latin-1")
