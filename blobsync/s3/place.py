"""Where a reader sends its requests, and whose keys sign them.

boto3 and its client take some 30 MiB and a fifth of a second. A process that only reads from a server by
path, with keys that do not expire, never loads it. Regions of AWS, profiles, roles and keys that are renewed
are known to boto3 alone: see `S3Clients.reader`.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from blobsync.errors import BlobSyncConfigError
from blobsync.s3.config import S3Config
from blobsync.s3.connection import ConnectionPool
from blobsync.s3.endpoint import Endpoint
from blobsync.s3.patience import Limits
from blobsync.s3.reader import S3Reader
from blobsync.s3.request import Credentials, GetSigner, Proxy

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}
_PLAIN_BUCKET = re.compile(r"(?!.*--)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""No ARN, and none of the kinds that AWS marks by an end such as `--ol-s3`."""


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Keys that do not change. See `blobsync.s3.request.Credentials`."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def place_without_boto3(config: S3Config) -> str | None:
    """What the addresses of objects begin with; None: boto3 must be asked."""
    if config.endpoint_url is None or config.addressing_style == "virtual":
        return None
    url = urlsplit(config.endpoint_url)
    if url.path.strip("/") or url.query or url.fragment or _PLAIN_BUCKET.fullmatch(config.bucket) is None:
        return None
    return f"{url.scheme}://{url.netloc}/{config.bucket}/"


def reader_without_boto3(config: S3Config, environ: Mapping[str, str] = os.environ) -> S3Reader | None:
    """Make a reader; None: boto3 must be asked where to read, or with whose keys.

    Raises:
        BlobSyncConfigError: the authorities to trust cannot be read.
    """
    who, place = static_credentials(config, environ), place_without_boto3(config)
    trusted = config.ca_bundle or environ.get("AWS_CA_BUNDLE")
    if who is None or place is None:
        return None
    if place.startswith("https:") and trusted is None:  # boto3 may have others in its configuration
        return None
    return reader_at(config, place, trusted, lambda: who)


def static_credentials(config: S3Config, environ: Mapping[str, str]) -> StaticCredentials | None:
    """Those of the configuration, or of the environment, where boto3 looks next; None: it is to look."""
    if config.access_key_id is not None and config.secret_access_key is not None:
        return StaticCredentials(config.access_key_id, config.secret_access_key.reveal())
    access, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret or environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    return StaticCredentials(access, secret, token or None)


def reader_at(
    config: S3Config, place: str, trusted: str | None, who: Callable[[], Credentials | None]
) -> S3Reader:
    """A reader of what lies below `place`.

    Args:
        config: The region and the time limits.
        place: `scheme://host[:port]/path/`, to which keys are added.
        trusted: File of authorities for https.
        who: As of `S3Reader`.

    Raises:
        BlobSyncConfigError: that file holds none, or the proxy is not one of HTTP.
    """
    url = urlsplit(place)
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    tls = _tls(trusted) if url.scheme == "https" else None
    proxy = proxy_for(url.scheme, url.netloc)
    endpoint = Endpoint(
        host=host,
        port=port,
        tls=tls,
        connect_timeout_s=config.connect_timeout.total_seconds(),
        limits=Limits(config.read_timeout.total_seconds(), config.slowest_bytes_per_s),
        proxy=proxy,
    )
    return S3Reader(
        config,
        ConnectionPool(endpoint, config.max_connections),
        url.path,
        GetSigner(host_header(url), config.region, None if tls else proxy),
        who,
    )


def host_header(url: SplitResult) -> str:
    """The header Host: without the scheme's own port."""
    return url.netloc.removesuffix(f":{_PORTS[url.scheme]}")


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """The proxy that the environment names for a host; None: connect directly.

    Raises:
        BlobSyncConfigError: it is not one of HTTP.
    """
    if not any(name.lower() == f"{scheme}_proxy" for name in os.environ):
        return None  # without loading what reads the rest
    from urllib.request import getproxies, proxy_bypass

    told = getproxies().get(scheme)
    if not told or proxy_bypass(host):
        return None
    try:
        url = urlsplit(told if "://" in told else f"http://{told}")
        port = url.port or _PORTS["http"]
    except ValueError:
        port = 0
    if port == 0 or url.scheme != "http" or not url.hostname:
        raise BlobSyncConfigError(f"{scheme}_proxy must be http://host[:port]; no other kind is known")
    header = ""
    if url.username is not None:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        header = f"Proxy-Authorization: Basic {base64.b64encode(words).decode()}\r\n"
    return Proxy(url.hostname, port, header)


def _tls(trusted: str | None) -> ssl.SSLContext:
    import ssl  # where nothing is encrypted nobody waits for it

    try:
        return ssl.create_default_context(cafile=trusted)
    except OSError as exc:
        raise BlobSyncConfigError(f"ca_bundle {trusted!r} holds no certificates: {exc}") from exc
