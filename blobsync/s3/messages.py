"""Requests for objects, signed, and the answers of an HTTP server: their bytes, their meaning. Pure.

To sign a request with botocore takes several times the CPU; a test compares the two signatures.

Nothing that a server says is trusted. Servers differ: to a request for a range, rclone answers with status
200 and the range, other servers with 200 and the whole object. So the header Content-Range decides, not the
status.

Source: AWS Signature Version 4 (docs.aws.amazon.com, "Authenticating Requests: Using the Authorization
Header").
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from blobsync.s3.config import S3Config

NO_SUCH_RANGE = 416
"""Status of an answer to a range that begins at or beyond the end of its object."""

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_CODE = re.compile(rb"<Code>([A-Za-z0-9._-]{1,100})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{0,1000})</Message>")


_EMPTY = hashlib.sha256().hexdigest()


class HttpError(Exception):
    """No answer, a broken one, or one that comes too slowly. The connection must be closed."""


class StaleConnectionError(HttpError):
    """The server closed the connection while it was idle; the same request may be sent over a new one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer.

    Its headers are by lower-case name; of a header that comes twice, the last one.
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
    """Parse the status and headers of an answer. HttpError if these are not the headers of an answer."""
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
    """A range of an object. `full` is the whole key, prefix included; `size_bytes` None: to the end."""

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

    Without the header `content_range`, the body is the whole object. Returns the bytes of the body to use;
    fewer than requested where the object ends. None: the answer is for another range.
    """
    start, size_bytes = wanted.start, wanted.size_bytes
    if content_range is None:
        skip = min(start, body_bytes)
        there = body_bytes - skip
        return BodySlice(skip, there if size_bytes is None else min(there, size_bytes))
    match = _CONTENT_RANGE.fullmatch(content_range.strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    if first != start or last - first + 1 != body_bytes:
        return None
    if size_bytes is not None and body_bytes >= size_bytes:
        return BodySlice(0, size_bytes)
    at_end = match[3] == "*" or last + 1 == int(match[3])
    return BodySlice(0, body_bytes) if at_end else None


def unchunked(raw: bytes) -> bytes | None:
    """Join the chunks of a body; None: its end has not been received.

    HttpError if the body is not chunked.
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


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys to sign with now. `token` is that of a session that expires; None: the keys do not expire."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def static_credentials(config: S3Config, environ: Mapping[str, str]) -> Credentials | None:
    """The keys of the configuration, or of the environment, as boto3 finds them; None: boto3 must look."""
    if config.access_key_id is not None and config.secret_access_key is not None:
        return Credentials(config.access_key_id, config.secret_access_key.reveal())
    access, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret or environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    return Credentials(access, secret, token or None)


class _DayKey(NamedTuple):
    """The signing key of a day, kept because it takes time to derive."""

    day: str
    secret: str
    key: bytes

    def __repr__(self) -> str:
        return "_DayKey(***)"


class GetSigner:
    """Makes the bytes of signed GET requests. Thread-safe.

    Args:
        host: As in the header Host: with the port, unless it is the default one.
        proxy_header: Requests are sent to a proxy, for plain HTTP, with this header line or none ("").
            None: they are sent to the server, or through a tunnel.
    """

    def __init__(self, host: str, region: str, proxy_header: str | None = None) -> None:
        self._host, self._region = host, region
        self._before_path = "" if proxy_header is None else f"http://{host}"  # RFC 9112, section 3.2.2
        self._for_proxy = proxy_header or ""
        self._day_key = _DayKey("", "", b"")

    def request(
        self, path: str, wanted: str | None, who: Credentials, now_s: float, query: str = ""
    ) -> bytes:
        """Make a whole request.

        `path` (from the slash on) and `query` (sorted by name, without the question mark) are
        percent-encoded; `wanted` is the header Range. `now_s` is since the epoch; servers refuse a time that
        is some minutes off.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
        headers = [("host", self._host)]
        if wanted is not None:
            headers.append(("range", wanted))
        headers += [("x-amz-content-sha256", _EMPTY), ("x-amz-date", stamp)]
        if who.token:
            headers.append(("x-amz-security-token", who.token))
        lines = "".join(f"{name}:{value}\n" for name, value in headers)
        names = ";".join(name for name, _ in headers)
        canonical = f"GET\n{path}\n{query}\n{lines}\n{names}\n{_EMPTY}".encode()
        scope = f"{stamp[:8]}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical).hexdigest()}".encode()
        signature = hmac.digest(self._key(stamp[:8], who.secret_key), text, "sha256").hex()
        sent = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return (
            f"GET {self._before_path}{path}{'?' if query else ''}{query} HTTP/1.1\r\n"
            f"{sent}{self._for_proxy}accept-encoding: identity\r\n"
            f"authorization: AWS4-HMAC-SHA256 Credential={who.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}\r\n\r\n"
        ).encode()

    def _key(self, day: str, secret: str) -> bytes:
        known = self._day_key
        if known.day != day or known.secret != secret:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day_key = known = _DayKey(day, secret, key)
        return known.key


def encoded(key: str) -> str:
    """A key, percent-encoded for a path."""
    return quote(key, safe="/")
