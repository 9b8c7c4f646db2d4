"""S3 through boto3. The only modules that know boto3 are this one and `s3_errors`.

Thread-safe: one client, made at construction. Nothing here relies on conditional puts, user metadata, tags
or the store's checksums, which S3-compatible servers ignore, lose or get wrong; what is read is verified by
its reader.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from blobsync.errors import BlobNotFoundError, BlobSyncConfigError, LocalStoreError, StoreUnavailableError
from blobsync.storage.ports import (
    CHUNK_BYTES,
    GoingOn,
    ObjectInfo,
    UnfinishedUpload,
    checked_key,
    checked_range,
    go_on,
)
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_making_clients = threading.Lock()  # boto3's sessions are not thread-safe, its clients are
_ALREADY_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
_DEFAULT_REGION = "us-east-1"  # must not be named as a location


class S3ObjectStore:
    """See `blobsync.storage.ports`. Connects at the first call, so it can be made without a server.

    Args:
        config: Where, who, and how patiently.
    """

    def __init__(self, config: S3Config) -> None:
        self._config = config
        with _making_clients:
            self._client = _client(config)

    def check(self) -> None:
        """Ask whether the bucket is there and lets us list it.

        Raises:
            BucketMissingError: it is not there.
            StoreAccessDeniedError: it does not let us.
            StoreUnavailableError: no answer.
        """
        with self._in_our_words(None):
            # Not HEAD: its answers have no body, so that a wrong secret and a missing right look alike.
            self._client.list_objects_v2(Bucket=self._config.bucket, MaxKeys=1)

    def ensure_bucket(self) -> None:
        """Make the bucket unless it is there. Safe to repeat.

        Raises:
            StoreAccessDeniedError, StoreUnavailableError: the server did not let us, or did not answer.
        """
        place: dict[str, Any] = {}
        if self._config.endpoint_url is None and self._config.region != _DEFAULT_REGION:
            place = {"CreateBucketConfiguration": {"LocationConstraint": self._config.region}}
        with self._in_our_words(None):
            try:
                self._client.create_bucket(Bucket=self._config.bucket, **place)
            except ClientError as exc:
                if exc.response.get("Error", {}).get("Code") not in _ALREADY_THERE:
                    raise
        self.check()  # a bucket of that name may be somebody else's

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """See `ObjectStore.read`."""
        checked_range(start, size_bytes)
        full = self._full(key)
        if size_bytes == 0:
            return
        wanted: dict[str, Any] = {}
        if start or size_bytes is not None:
            wanted["Range"] = f"bytes={start}-{'' if size_bytes is None else start + size_bytes - 1}"
        with self._in_our_words(full):
            answer = self._client.get_object(Bucket=self._config.bucket, Key=full, **wanted)
            announced, got = answer["ContentLength"], 0
            with answer["Body"] as body:
                # Bounded reads: one read of everything returns short without a word when the server breaks
                # off.
                while chunk := body.read(CHUNK_BYTES):
                    got += len(chunk)
                    yield chunk
        if got != announced:
            raise StoreUnavailableError(
                f"s3://{self._config.bucket}/{full} broke off after {got} of {announced} bytes; read it again"
            )

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, going_on: GoingOn) -> None:
        """See `ObjectStore.copy`."""
        offset = start
        for chunk in self.read(key, start=start, size_bytes=size_bytes):
            os.pwrite(fd, chunk, offset)
            offset += len(chunk)
            going_on(len(chunk))
        if offset != start + size_bytes:
            raise StoreUnavailableError(f"{key} gave {offset - start} of {size_bytes} bytes from {start} on")

    def write(self, key: str, data: bytes | Path, *, going_on: GoingOn = go_on) -> None:
        """See `ObjectStore.write`. Sends the MD5, which the server checks where it can."""
        full = self._full(key)
        try:
            with self._in_our_words(full):
                if isinstance(data, bytes):
                    self._put(full, data, hashlib.md5(data, usedforsecurity=False).digest())
                else:
                    with data.open("rb") as file:
                        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
                        file.seek(0)
                        self._put(full, file, md5)
        except OSError as exc:
            raise LocalStoreError(
                f"{data!r} cannot be read for s3://{self._config.bucket}/{full}: {exc}"
            ) from exc
        going_on(len(data) if isinstance(data, bytes) else data.stat().st_size)

    def _put(self, full: str, body: Any, md5: bytes) -> None:
        self._client.put_object(
            Bucket=self._config.bucket, Key=full, Body=body, ContentMD5=base64.b64encode(md5).decode()
        )

    def size(self, key: str) -> int | None:
        """See `ObjectStore.size`."""
        full = self._full(key)
        try:
            with self._in_our_words(full):
                return self._client.head_object(Bucket=self._config.bucket, Key=full)["ContentLength"]
        except BlobNotFoundError:
            return None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        own = self._config.prefix
        after: dict[str, Any] = {} if start_after is None else {"StartAfter": own + start_after}
        with self._in_our_words(None):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._config.bucket, Prefix=own + prefix, **after
            )
            for page in pages:
                for item in page.get("Contents", []):
                    yield ObjectInfo(item["Key"].removeprefix(own), item["Size"], item["LastModified"])

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        full = self._full(key)
        try:
            with self._in_our_words(full):
                self._client.delete_object(Bucket=self._config.bucket, Key=full)
        except BlobNotFoundError:
            return

    def delete_many(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete_many`."""
        for key in [checked_key(key) for key in keys]:
            self.delete(key)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `ObjectStore.unfinished_uploads`."""
        yield from ()

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        """See `ObjectStore.abandon_uploads`."""
        return 0

    def close(self) -> None:
        """Close the connections. Calls under way fail."""
        self._client.close()

    def _full(self, key: str) -> str:
        return self._config.prefix + checked_key(key)

    @contextmanager
    def _in_our_words(self, full: str | None) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as exc:
            raise translated(exc, self._config, full) from exc


def _client(config: S3Config) -> S3Client:
    secret = config.secret_access_key
    try:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=config.endpoint_url,
            region_name=config.region,
            aws_access_key_id=config.access_key_id,
            aws_secret_access_key=secret.reveal() if secret is not None else None,
            verify=config.ca_bundle,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path" if config.endpoint_url else "auto"},
                # Newer clients add checksums by default, which some servers refuse, store inside the object,
                # or answer with wrongly for ranges. Every byte is verified by SHA-256 by whoever reads it.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                max_pool_connections=config.max_connections,
                retries={"mode": "standard", "total_max_attempts": config.max_attempts},
                connect_timeout=config.connect_timeout.total_seconds(),
                read_timeout=config.read_timeout.total_seconds(),
                tcp_keepalive=True,
            ),
        )
    except (BotoCoreError, ValueError) as exc:
        raise BlobSyncConfigError(f"no S3 client can be made for {config.where}: {exc}") from exc
