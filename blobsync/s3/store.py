"""The object store in S3. `reader` reads objects over its own connections; boto3 does the rest.

boto3 is imported when it is first needed: a process that only reads may not need it. Thread-safe.

Nothing here relies on conditional puts, user metadata, tags or checksums of the server: S3-compatible servers
ignore them, lose them or get them wrong. Callers verify what they read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, timedelta
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blobsync.bucket.ports import (
    ObjectInfo,
    OnProgress,
    UnfinishedUpload,
    checked_key,
    checked_range,
    ignore_progress,
)
from blobsync.errors import BlobNotFoundError, BucketRefusedError, BucketUnavailableError
from blobsync.s3.config import S3Config
from blobsync.s3.errors import answered
from blobsync.s3.messages import ByteRange
from blobsync.s3.reader import S3Reader, reader_without_boto3
from blobsync.s3.upload_source import opened

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

    from blobsync.s3.client import S3Clients
    from blobsync.s3.upload import S3Uploads

_ALREADY_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
_DEFAULT_REGION = "us-east-1"  # must not be named as a location
_DELETED_AT_A_TIME, _FIRST_KEYS = 1000, 128
_SIGNED = {"GET": "get_object", "HEAD": "head_object", "PUT": "put_object"}


class S3ObjectStore:
    """See `blobsync.bucket.ports`. Connects at the first call, so it can be made without a server.

    Args:
        config: The bucket, the keys and the time limits. If boto3 cannot make a client of it, the first call
            that needs one raises BlobSyncConfigError.
    """

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self._clients: S3Clients | None = None
        self._made_reader: S3Reader | None = None
        self._making = threading.RLock()

    def check(self) -> None:
        """See `ObjectStore.check`. Asks for the first name in the bucket, so the keys must permit that."""
        # Not HEAD: its answers have no body, so a wrong secret and a missing permission look alike.
        self._reader.check()

    def ensure_bucket(self) -> None:
        """Create the bucket unless it exists. Safe to repeat."""
        from botocore.exceptions import ClientError

        place: dict[str, Any] = {}
        if self._config.endpoint_url is None and self._config.region != _DEFAULT_REGION:
            place = {"CreateBucketConfiguration": {"LocationConstraint": self._config.region}}
        with self._translating_errors(None):
            try:
                self._client.create_bucket(Bucket=self._config.bucket, **place)
            except ClientError as exc:
                if exc.response.get("Error", {}).get("Code") not in _ALREADY_THERE:
                    raise
        self.check()  # another account may own a bucket of that name

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """See `ObjectStore.read`."""
        checked_range(start, size_bytes)
        wanted = ByteRange(self._full(key), start, size_bytes)
        if size_bytes != 0:
            yield from self._reader.read(wanted)

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        """See `ObjectStore.copy`."""
        checked_range(start, size_bytes)
        wanted = ByteRange(self._full(key), start, size_bytes)
        got = self._reader.copy(wanted, fd, on_progress) if size_bytes else 0
        if got != size_bytes:
            raise BucketUnavailableError(
                f"s3://{self._config.bucket}/{wanted.full} has {got} of the {size_bytes} bytes from "
                f"{start} on; it is shorter than it should be"
            )

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        """See `ObjectStore.write`. Sends an MD5 of each request's body, which most servers compare."""
        full = self._full(key)
        with self._translating_errors(full), opened(data) as source:
            self._uploads.send(full, source, on_progress)

    def presigned(self, method: str, key: str, lifetime: timedelta) -> str:
        """A URL with which everyone may read, examine or write one object until it expires. Makes no request.

        Args:
            method: `GET`, `HEAD` or `PUT`.
            key: Key of the object.
            lifetime: Longest time for which the URL is valid.

        Raises:
            InvalidKeyError: `key` is not valid.
            BlobSyncError: there are no credentials.
        """
        return self._boto3.presigned(_SIGNED[method], self._full(key), lifetime)

    @property
    def write_headers(self) -> dict[str, str]:
        """Headers that a request with a presigned URL for `PUT` must have."""
        return self._config.write_headers

    def size(self, key: str) -> int | None:
        """See `ObjectStore.size`."""
        full = self._full(key)
        try:
            with self._translating_errors(full):
                return self._client.head_object(Bucket=self._config.bucket, Key=full)["ContentLength"]
        except BlobNotFoundError:
            return None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        own = self._config.prefix
        after: dict[str, Any] = {} if start_after is None else {"StartAfter": own + start_after}
        with self._translating_errors(None):
            objects = (
                ObjectInfo(item["Key"].removeprefix(own), item["Size"], item["LastModified"].astimezone(UTC))
                for page in self._pages(own + prefix, after)
                for item in page.get("Contents", [])
            )
            # `rclone serve s3` lists a key twice after two clients have written it at the same time.
            for _, entries in groupby(objects, key=lambda info: info.key):
                yield max(entries, key=lambda info: info.modified)

    def _pages(self, prefix: str, after: Mapping[str, Any]) -> Iterator[ListObjectsV2OutputTypeDef]:
        """Pages of a list. The first one is short: boto3 takes 50 µs for a key, and many callers want few."""
        of: Any = {"Bucket": self._config.bucket, "Prefix": prefix, **after}
        first = self._client.list_objects_v2(**of, MaxKeys=_FIRST_KEYS)
        yield first
        if first["IsTruncated"]:
            if keys := first.get("Contents"):
                of["StartAfter"] = keys[-1]["Key"]
            yield from self._client.get_paginator("list_objects_v2").paginate(**of)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        full = self._full(key)
        try:
            with self._translating_errors(full):
                self._client.delete_object(Bucket=self._config.bucket, Key=full)
        except BlobNotFoundError:
            return

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        """See `ObjectStore.delete_many`. One by one where the server cannot take many at once."""
        waiting = iter([checked_key(key) for key in keys])
        while batch := list(islice(waiting, _DELETED_AT_A_TIME)):
            if before_each is not None:
                before_each()
            try:
                self._delete_batch(batch)
            except BucketRefusedError:
                for key in batch:
                    if before_each is not None:
                        before_each()
                    self.delete(key)

    def _delete_batch(self, batch: Sequence[str]) -> None:
        with self._translating_errors(None):
            answer = self._client.delete_objects(
                Bucket=self._config.bucket,
                Delete={"Objects": [{"Key": self._full(key)} for key in batch], "Quiet": True},
            )
        for failed in answer.get("Errors", []):
            code, message = str(failed.get("Code", "")), str(failed.get("Message", ""))
            error = answered(0, code, message, self._config, failed.get("Key"))
            if not isinstance(error, BlobNotFoundError):
                raise error

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `ObjectStore.unfinished_uploads`."""
        own = self._config.prefix
        with self._translating_errors(None):
            for upload in self._uploads.unfinished(own + prefix):
                yield UnfinishedUpload(upload.key.removeprefix(own), upload.upload_id, upload.age)

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        """See `ObjectStore.abandon_uploads`."""
        old = [upload for upload in self.unfinished_uploads(prefix) if upload.age >= older_than]
        with self._translating_errors(None):
            # Not self._full, which refuses keys that others have made.
            return sum(
                self._uploads.abandon(self._config.prefix + upload.key, upload.upload_id) for upload in old
            )

    def close(self) -> None:
        """See `ObjectStore.close`. Connections that are in use are closed when their call ends."""
        with self._making:
            if self._made_reader is not None:
                self._made_reader.close()
            if self._clients is not None:
                self._clients.close()

    @property
    def _reader(self) -> S3Reader:
        """Made at the first read, since finding credentials may take a request."""
        if self._made_reader is None:
            with self._making:
                if self._made_reader is None:
                    self._made_reader = reader_without_boto3(self._config) or self._boto3.reader()
        return self._made_reader

    @property
    def _boto3(self) -> S3Clients:
        """Made when it is first needed."""
        with self._making:
            if self._clients is None:
                from blobsync.s3.client import S3Clients

                self._clients = S3Clients(self._config)
            return self._clients

    @property
    def _client(self) -> S3Client:
        return self._boto3.client

    @property
    def _uploads(self) -> S3Uploads:
        from blobsync.s3.upload import S3Uploads

        return S3Uploads(self._client, self._config)

    def _full(self, key: str) -> str:
        return self._config.prefix + checked_key(key)

    def _translating_errors(self, full: str | None) -> AbstractContextManager[None]:
        from blobsync.s3.client import translating_errors

        return translating_errors(self._config, full)
