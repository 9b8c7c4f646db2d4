"""Answers of an HTTP server: their headers, and which bytes of their body belong to a range. Pure.

Nothing that a server says is trusted. Servers differ: to a request for a range, rclone answers with status
200 and the range, other servers with 200 and the whole object. So the header Content-Range decides, not the
status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

NO_SUCH_RANGE = 416
"""Status of an answer to a range that begins at or beyond the end of its object."""

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_CODE = re.compile(rb"<Code>([A-Za-z0-9._-]{1,100})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{0,1000})</Message>")


class HttpError(Exception):
    """No answer, a broken one, or one that comes too slowly. The connection must be closed."""


class StaleConnectionError(HttpError):
    """The server closed the connection while it was idle; the same request may be sent over a new one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer.

    Attributes:
        status: Of HTTP.
        headers: By lower-case name. Of a header that comes twice, the last.
    """

    status: int
    headers: Mapping[str, str]

    @property
    def size_bytes(self) -> int | None:
        """Length of the body; None: the answer does not say it, or the body is chunked."""
        if "transfer-encoding" in self.headers:  # RFC 9112, section 6.3: it overrides Content-Length
            return None
        length = self.headers.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None

    @property
    def is_chunked(self) -> bool:
        """True if the body comes in chunks, each with its size before it."""
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def keeps_open(self) -> bool:
        """True if the server takes another request over this connection."""
        return "close" not in self.headers.get("connection", "").lower()


def parsed(data: bytes) -> Head:
    """Parse the status and headers of an answer.

    Raises:
        HttpError: these are not the headers of an answer.
    """
    status, *lines = data.decode("latin-1").split("\r\n")
    version, _, rest = status.partition(" ")
    code = rest[:3]
    if version not in {"HTTP/1.1", "HTTP/1.0"} or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise HttpError(f"no HTTP: {status[:80]!r}")
    headers: dict[str, str] = {"connection": "close"} if version == "HTTP/1.0" else {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise HttpError(f"a malformed header: {line[:80]!r}")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise HttpError("two different lengths")
        headers[name] = value
    return Head(int(code), headers)


def broken(exc: Exception) -> HttpError:
    """Turn any failure of a connection into an `HttpError`."""
    return exc if isinstance(exc, HttpError) else HttpError(f"{type(exc).__name__}: {exc}")


class ByteRange(NamedTuple):
    """A range of an object.

    Attributes:
        full: The whole key, prefix included.
        start: First byte.
        size_bytes: How many; None: all from there on.
    """

    full: str
    start: int
    size_bytes: int | None

    @property
    def header(self) -> str | None:
        """Value of the header Range; None: the whole object, so none is sent."""
        if self.start == 0 and self.size_bytes is None:
            return None
        return f"bytes={self.start}-{'' if self.size_bytes is None else self.start + self.size_bytes - 1}"


class BodySlice(NamedTuple):
    """The bytes of an answer's body that are used: `size_bytes` of them, after the first `skip_bytes`."""

    skip_bytes: int
    size_bytes: int


def body_slice(content_range: str | None, body_bytes: int, wanted: ByteRange) -> BodySlice | None:
    """Compare an answer with the range that was requested.

    Args:
        content_range: The header of the answer; None: it has none, so its body is the whole object.
        body_bytes: Length of the body.
        wanted: The range that was requested.

    Returns:
        The bytes of the body to use; fewer than requested where the object ends. None: the answer is for
        another range.
    """
    start, size_bytes = wanted.start, wanted.size_bytes
    if content_range is None:
        skip = min(start, body_bytes)
        there = body_bytes - skip
        return BodySlice(skip, there if size_bytes is None else min(there, size_bytes))
    found = _CONTENT_RANGE.fullmatch(content_range.strip())
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    if first != start or last - first + 1 != body_bytes:
        return None
    if size_bytes is not None and body_bytes >= size_bytes:
        return BodySlice(0, size_bytes)
    at_end = found[3] == "*" or last + 1 == int(found[3])
    return BodySlice(0, body_bytes) if at_end else None


def unchunked(raw: bytes) -> bytes | None:
    """Join the chunks of a body; None: its end has not been received.

    Raises:
        HttpError: the body is not chunked.
    """
    chunks, at = list[bytes](), 0
    while (end := raw.find(b"\r\n", at)) >= 0:
        size = _CHUNK_SIZE.fullmatch(raw, at, end)
        if size is None:
            raise HttpError(f"no size of a chunk: {raw[at:end][:80]!r}")
        size_bytes = int(size[1], 16)
        if size_bytes == 0:
            return b"".join(chunks)
        start = end + 2
        chunks.append(raw[start : start + size_bytes])
        at = start + size_bytes + 2
    return None


def code_and_message(body: bytes) -> tuple[str, str]:
    """Code and message in the body of an S3 error; empty where they are missing."""
    code, message = _CODE.search(body), _MESSAGE.search(body)
    return code[1].decode() if code else "", message[1].decode(errors="replace") if message else ""
