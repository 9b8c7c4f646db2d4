"""How to reach a bucket. Imports no S3 client, so that configuration can be read without one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args
from urllib.parse import urlsplit

from blobsync.errors import BlobSyncConfigError
from blobsync.names import path_fault

AddressingStyle = Literal["auto", "path", "virtual"]
Encryption = Literal["AES256", "aws:kms"]

MIB = 1 << 20
LEAST_PART_BYTES = 5 * MIB
MAX_PART_BYTES = 5 << 30
MAX_PARTS = 10_000
"""Limits of S3 for one upload."""

_ENCRYPTION = "x-amz-server-side-encryption"
_REGION = re.compile(r"(?![0-9]+$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


class Secret:
    """A secret that `repr`, `str` and formats do not show; `reveal` does."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself. Do not keep or print it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Config:
    """Checked once, here, then trusted.

    Args:
        endpoint_url: `http(s)://host[:port]` of an S3-compatible server; None: AWS. Required.
        bucket: Its name. Required.
        prefix: Prefix of all keys; a slash is added at its end. Default: empty.
        region: For signatures; most servers other than AWS accept any. Default: `us-east-1`.
        access_key_id: With the secret; None for both, the default: the usual chain of boto3 (environment,
            files, role). Keys of the chain that expire are renewed by it.
        secret_access_key: Never shown. A plain string is wrapped in `Secret`.
        addressing_style: Place of the bucket's name: `path` (`host/bucket/key`), `virtual`
            (`bucket.host/key`), or `auto`, the default: `path` with an `endpoint_url`, else as AWS wants it.
        connect_timeout: For opening a connection. Default: 3 s.
        read_timeout: Longest silence within an answer, and longest wait for its beginning, also if the server
            sends interim answers. Ten times as long when it completes an upload. Default: 15 s.
        slowest_bytes_per_s: A request that is sent, or an answer that comes, more slowly than that, beyond
            `read_timeout`, fails. Bytes a second; default: 16 KiB.
        max_attempts: Limit of tries of one request. Default: 2. Callers retry beyond that.
        max_connections: Limit of open connections; one for each thread that uses the store. Default: 16.
        multipart_bytes: Larger objects are sent in parts. Bytes; default: 64 MiB, at least 5 MiB.
        part_bytes: Size of a part; larger if 10,000 parts are not enough. Default: 16 MiB, at least 5 MiB.
        ca_bundle: File with certificates to trust instead of those that boto3 trusts (`AWS_CA_BUNDLE`, else
            its own). Default: None.
        encryption: How the server encrypts the objects that are written: `AES256`, with its own keys, or
            `aws:kms`. None, the default: each write leaves it to the bucket. `blobsync.probe` tests it.
        kms_key_id: Key of `aws:kms`; None, the default: that of the account.
    """

    endpoint_url: str | None
    bucket: str
    prefix: str = ""
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: Secret | None = None
    addressing_style: AddressingStyle = "auto"
    connect_timeout: timedelta = timedelta(seconds=3)
    read_timeout: timedelta = timedelta(seconds=15)
    slowest_bytes_per_s: int = 16 << 10
    max_attempts: int = 2
    max_connections: int = 16
    multipart_bytes: int = 64 * MIB
    part_bytes: int = 16 * MIB
    ca_bundle: str | None = None
    encryption: Encryption | None = None
    kms_key_id: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.secret_access_key, str):  # a mistake the type check cannot see must not leak it
            object.__setattr__(self, "secret_access_key", Secret(self.secret_access_key))
        if self.endpoint_url is not None:
            self._check_endpoint(self.endpoint_url)
        if not self.bucket or "/" in self.bucket:
            raise BlobSyncConfigError(
                f"bucket {self.bucket!r} is not a bucket's name; folders belong into prefix"
            )
        if self.bucket.endswith("--x-s3"):
            raise BlobSyncConfigError(
                f"bucket {self.bucket!r} is a directory bucket of S3 Express, whose listings have no "
                f"order; use a general purpose bucket"
            )
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise BlobSyncConfigError("give access_key_id and secret_access_key both, or neither")
        if self.connect_timeout <= timedelta(0) or self.read_timeout <= timedelta(0):
            raise BlobSyncConfigError("connect_timeout and read_timeout must be above 0")
        self._check_choices()
        self._check_numbers()
        prefix = self.prefix.strip("/")
        if prefix and (fault := path_fault(prefix)) is not None:
            raise BlobSyncConfigError(f"prefix {self.prefix!r} {fault}")
        object.__setattr__(self, "prefix", f"{prefix}/" if prefix else "")

    def _check_choices(self) -> None:
        if _REGION.fullmatch(self.region) is None:
            raise BlobSyncConfigError(
                f"region {self.region!r} is not a region's name: letters, digits and dashes, at most 63"
            )
        choices = get_args(AddressingStyle)
        if self.addressing_style not in choices:
            raise BlobSyncConfigError(
                f"addressing_style {self.addressing_style!r} must be one of {', '.join(choices)}"
            )
        if self.encryption is not None and self.encryption not in get_args(Encryption):
            raise BlobSyncConfigError(
                f"encryption {self.encryption!r} must be one of {', '.join(get_args(Encryption))}"
            )
        if self.kms_key_id is not None and self.encryption != "aws:kms":
            raise BlobSyncConfigError("kms_key_id is given, so encryption must be aws:kms")

    def _check_numbers(self) -> None:
        for name in ("max_attempts", "max_connections", "slowest_bytes_per_s"):
            if getattr(self, name) < 1:
                raise BlobSyncConfigError(f"{name} ({getattr(self, name)}) must be at least 1")
        for name in ("multipart_bytes", "part_bytes"):
            if not LEAST_PART_BYTES <= getattr(self, name) <= MAX_PART_BYTES:
                raise BlobSyncConfigError(
                    f"{name} ({getattr(self, name)}) must be from {LEAST_PART_BYTES} to {MAX_PART_BYTES} "
                    f"bytes: S3 takes no other parts"
                )

    @staticmethod
    def _check_endpoint(url: str) -> None:
        if "@" in url:  # so that no message has them
            raise BlobSyncConfigError(
                "endpoint_url must not hold credentials; use access_key_id and secret_access_key"
            )
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number, or too large
            is_valid = False
        if not is_valid:
            raise BlobSyncConfigError(f"endpoint_url {url!r} is not http(s)://host[:port]")

    @property
    def write_headers(self) -> dict[str, str]:
        """Headers that each request must have which makes an object, also with a presigned URL."""
        if self.encryption is None:
            return {}
        key = {} if self.kms_key_id is None else {f"{_ENCRYPTION}-aws-kms-key-id": self.kms_key_id}
        return {_ENCRYPTION: self.encryption, **key}

    @property
    def where(self) -> str:
        """Endpoint and bucket, for messages."""
        return f"bucket {self.bucket!r} at {self.endpoint_url or f'AWS {self.region}'}"
