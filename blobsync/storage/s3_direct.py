"""What can be known without boto3, whose import and client take some 30 MiB and a seventh of a second.

A process that only reads from a server by path, with keys that do not expire, never loads it. Whatever else
there is (AWS with its regions, profiles and roles, keys that are renewed, proxies) is left to boto3, which
knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from blobsync.errors import BlobSyncConfigError
from blobsync.storage.http import Endpoint
from blobsync.storage.http_pool import HttpPool
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_get import S3Getter
from blobsync.storage.s3_signer import Credentials

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}
_PLAIN_BUCKET = re.compile(r"(?!.*--)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""No ARN, and none of the kinds that AWS marks by an end such as `--x-s3`."""


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Keys that do not change. See `blobsync.storage.s3_signer.Credentials`."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def direct_getter(config: S3Config, environ: Mapping[str, str] = os.environ) -> S3Getter | None:
    """Make the fast way to read; None: boto3 is needed to know where, or who.

    Raises:
        BlobSyncConfigError: the authorities to trust cannot be read.
    """
    who = static_credentials(config, environ)
    if who is None or config.endpoint_url is None or config.addressing_style == "virtual":
        return None
    url = urlsplit(config.endpoint_url)
    if url.path.strip("/") or url.query or url.fragment or _PLAIN_BUCKET.fullmatch(config.bucket) is None:
        return None
    trusted = config.ca_bundle or environ.get("AWS_CA_BUNDLE")
    if url.scheme == "https" and trusted is None:  # boto3 may have others in its configuration
        return None
    return getter_at(config, f"{url.scheme}://{url.netloc}/{config.bucket}/", trusted, lambda: who)


def static_credentials(config: S3Config, environ: Mapping[str, str]) -> StaticCredentials | None:
    """Those of the configuration, or of the environment, where boto3 looks next; None: it is to look."""
    if config.access_key_id is not None and config.secret_access_key is not None:
        return StaticCredentials(config.access_key_id, config.secret_access_key.reveal())
    access, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret or environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    return StaticCredentials(access, secret, token or None)


def getter_at(
    config: S3Config, place: str, trusted: str | None, who: Callable[[], Credentials | None]
) -> S3Getter | None:
    """A getter of what lies below `place`; None: a proxy is between.

    Args:
        config: How patiently.
        place: `scheme://host[:port]/path/`, to which keys are added.
        trusted: File of authorities for https.
        who: As of `S3Getter`.

    Raises:
        BlobSyncConfigError: that file holds none.
    """
    url = urlsplit(place)
    if url.hostname is None or _proxied(url.scheme, url.hostname):
        return None
    endpoint = Endpoint(
        host=url.hostname,
        port=url.port or _PORTS[url.scheme],
        tls=_tls(trusted) if url.scheme == "https" else None,
        connect_timeout_s=config.connect_timeout.total_seconds(),
        read_timeout_s=config.read_timeout.total_seconds(),
        slowest_bytes_per_s=config.slowest_bytes_per_s,
    )
    return S3Getter(
        config,
        HttpPool(endpoint, config.max_connections),
        path=url.path,
        host=url.netloc if url.port != _PORTS[url.scheme] else url.hostname,
        credentials=who,
    )


def _proxied(scheme: str, host: str) -> bool:
    if not any(name.lower() == f"{scheme}_proxy" for name in os.environ):
        return False  # without loading what reads the rest
    from urllib.request import getproxies, proxy_bypass

    return scheme in getproxies() and not proxy_bypass(host)


def _tls(trusted: str | None) -> ssl.SSLContext:
    import ssl  # where nothing is encrypted nobody waits for it

    try:
        return ssl.create_default_context(cafile=trusted)
    except OSError as exc:
        raise BlobSyncConfigError(f"ca_bundle {trusted!r} holds no certificates: {exc}") from exc
