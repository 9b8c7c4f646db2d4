"""The beginning of an HTTP answer, and what may be wrong with one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class HttpError(Exception):
    """No answer, a broken one, or one that comes too slowly. The connection is of no more use."""


class StaleConnectionError(HttpError):
    """The server closed the connection while it was idle; the same request may be sent over a new one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer.

    Attributes:
        status: Of HTTP.
        headers: By lower-case name. Of a name that comes twice, the last; but never two lengths.
    """

    status: int
    headers: Mapping[str, str]

    @property
    def size_bytes(self) -> int | None:
        """How long the body is; None: that is said in another way (chunked), or not at all."""
        if "transfer-encoding" in self.headers:  # RFC 9112, section 6.3: it overrides Content-Length
            return None
        length = self.headers.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None

    @property
    def keeps_open(self) -> bool:
        """Whether the server will take another request."""
        return "close" not in self.headers.get("connection", "").lower()


def parsed(data: bytes) -> Head:
    """Parse the status and headers of an answer.

    Raises:
        HttpError: it is none.
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
    """Any failure of a connection as one of these."""
    return exc if isinstance(exc, HttpError) else HttpError(f"{type(exc).__name__}: {exc}")
