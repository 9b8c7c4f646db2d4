"""Signed requests for objects, and the keys that sign them.

botocore takes several times the CPU; a test compares the two.

Source: AWS Signature Version 4 (docs.aws.amazon.com, "Authenticating Requests: Using the Authorization
Header").
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import quote

from blobsync.s3.config import S3Config
from blobsync.s3.endpoint import Proxy

_EMPTY = hashlib.sha256().hexdigest()


class Credentials(Protocol):
    """The keys to sign with now, such as botocore's frozen credentials."""

    @property
    def access_key(self) -> str:
        """The access key id."""
        ...

    @property
    def secret_key(self) -> str:
        """Never logged."""
        ...

    @property
    def token(self) -> str | None:
        """Of a session that expires; None: the keys do not."""
        ...


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Keys that do not change."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def static_credentials(config: S3Config, environ: Mapping[str, str]) -> StaticCredentials | None:
    """The keys of the configuration, or of the environment, as boto3 finds them; None: boto3 must look."""
    if config.access_key_id is not None and config.secret_access_key is not None:
        return StaticCredentials(config.access_key_id, config.secret_access_key.reveal())
    access, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret or environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    return StaticCredentials(access, secret, token or None)


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
        region: Of the bucket.
        proxy: The proxy that requests are sent to, for plain HTTP; None: they are sent to the server, or
            through a tunnel.
    """

    def __init__(self, host: str, region: str, proxy: Proxy | None = None) -> None:
        self._host, self._region = host, region
        self._before_path = f"http://{host}" if proxy else ""  # RFC 9112, section 3.2.2
        self._for_proxy = proxy.header if proxy else ""
        self._day_key = _DayKey("", "", b"")

    def request(
        self, path: str, wanted: str | None, who: Credentials, now_s: float, query: str = ""
    ) -> bytes:
        """Make a whole request.

        Args:
            path: Percent-encoded, from the slash on; see `encoded`.
            wanted: Value of the header Range; None: everything.
            who: The keys.
            now_s: Seconds since the epoch; servers refuse a time that is some minutes off.
            query: Percent-encoded, sorted by name, without the question mark.
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
