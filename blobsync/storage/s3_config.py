"""How to reach a bucket. Imports no S3 client, so that configuration can be read without one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from blobsync.errors import BlobSyncConfigError
from blobsync.names import path_fault
from blobsync.storage.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Config:
    """Checked once, here, then trusted.

    Args:
        endpoint_url: `http(s)://host[:port]` of an S3-compatible server; None: AWS.
        bucket: Its name.
        prefix: What all keys begin with; a slash is put at its end.
        region: Signatures are made for it; most servers other than AWS take any.
        access_key_id: With the secret; None for both: the usual chain of boto3 (environment, files, role).
        secret_access_key: Never shown. A plain string is wrapped at once.
        connect_timeout: For opening a connection.
        read_timeout: Longest silence within an answer.
        max_attempts: How often a request is sent, at most; every caller here retries beyond that, with a say
            in it.
        max_connections: Kept open; at least as many as threads use the store.
        ca_bundle: File with certificates to trust instead of the system's.
    """

    endpoint_url: str | None
    bucket: str
    prefix: str = ""
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: Secret | None = None
    connect_timeout: timedelta = timedelta(seconds=3)
    read_timeout: timedelta = timedelta(seconds=15)
    max_attempts: int = 2
    max_connections: int = 16
    ca_bundle: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.secret_access_key, str):  # a mistake the type check cannot see must not leak it
            object.__setattr__(self, "secret_access_key", Secret(self.secret_access_key))
        if self.endpoint_url is not None:
            self._check_endpoint(self.endpoint_url)
        if not self.bucket or "/" in self.bucket:
            raise BlobSyncConfigError(
                f"bucket {self.bucket!r} is not a bucket's name; folders belong into prefix"
            )
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise BlobSyncConfigError("give access_key_id and secret_access_key both, or neither")
        if self.connect_timeout <= timedelta(0) or self.read_timeout <= timedelta(0):
            raise BlobSyncConfigError("connect_timeout and read_timeout must be above 0")
        if self.max_attempts < 1 or self.max_connections < 1:
            raise BlobSyncConfigError("max_attempts and max_connections must be at least 1")
        prefix = self.prefix.strip("/")
        if prefix and (fault := path_fault(prefix)) is not None:
            raise BlobSyncConfigError(f"prefix {self.prefix!r} {fault}")
        object.__setattr__(self, "prefix", f"{prefix}/" if prefix else "")

    @staticmethod
    def _check_endpoint(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BlobSyncConfigError(f"endpoint_url {url!r} is not http(s)://host[:port]")
        if parts.username is not None or parts.password is not None:
            raise BlobSyncConfigError(
                "endpoint_url must not hold credentials; use access_key_id and secret_access_key"
            )

    @property
    def where(self) -> str:
        """Endpoint and bucket, for messages."""
        return f"bucket {self.bucket!r} at {self.endpoint_url or f'AWS {self.region}'}"
