"""S3, as AWS and many others speak it: writing and listing through boto3, reading over our own connections.

boto3 is imported when something needs it, so a process that only reads may do without. Thread-safe.

Nothing here relies on conditional puts, user metadata, tags or the store's checksums, which
S3-compatible servers ignore, lose or get wrong; what is read is verified by its reader.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    LocalStoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from blobsync.storage.many import Whole, one_by_one
from blobsync.storage.ports import (
    GoingOn,
    ObjectInfo,
    UnfinishedUpload,
    checked_key,
    checked_range,
    go_on,
)
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_direct import direct_getter
from blobsync.storage.s3_errors import answered
from blobsync.storage.s3_get import LeftToClientError, S3Getter
from blobsync.storage.s3_many import S3ManyReader
from blobsync.storage.s3_range import Wanted
from blobsync.storage.s3_source import opened
from blobsync.storage.splice import FileWriteError, write_at

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

    from blobsync.storage.s3_client import S3Clients

_ALREADY_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
_DEFAULT_REGION = "us-east-1"  # must not be named as a location
_DELETED_AT_A_TIME = 1000
_SIGNED = {"GET": "get_object", "HEAD": "head_object", "PUT": "put_object"}


class S3ObjectStore:
    """See `blobsync.storage.ports`. Connects at the first call, so it can be made without a server.

    Args:
        config: Where, who, and how patiently. If no client of boto3 can be made of it, the first call that
            needs one raises BlobSyncConfigError.
    """

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self._clients: S3Clients | None = None
        self._getter: S3Getter | None = None
        self._has_getter = False
        self._making = threading.RLock()

    def check(self) -> None:
        """Ask whether the bucket is there and lets us list it.

        Raises:
            BucketMissingError: it is not there.
            StoreAccessDeniedError: it does not let us.
            StoreUnavailableError: no answer.
        """
        # Not HEAD: its answers have no body, so that a wrong secret and a missing right look alike.
        getter = self._fast()
        if getter is not None:
            try:
                getter.check()
            except LeftToClientError:
                pass
            else:
                return
        with self._in_our_words(None):
            self._client.list_objects_v2(Bucket=self._config.bucket, MaxKeys=1)

    def ensure_bucket(self) -> None:
        """Make the bucket unless it is there. Safe to repeat.

        Raises:
            StoreAccessDeniedError, StoreUnavailableError: the server did not let us, or did not answer.
        """
        from botocore.exceptions import ClientError

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
        wanted = Wanted(self._full(key), start, size_bytes)
        if size_bytes == 0:
            return
        getter = self._fast()
        if getter is not None:
            try:
                yield from getter.read(wanted)
            except LeftToClientError:  # nothing was given yet
                pass
            else:
                return
        yield from self._read_slowly(wanted)

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, going_on: GoingOn) -> None:
        """See `ObjectStore.copy`."""
        checked_range(start, size_bytes)
        wanted = Wanted(self._full(key), start, size_bytes)
        got = self._copy(wanted, fd, going_on) if size_bytes else 0
        if got != size_bytes:
            raise StoreUnavailableError(
                f"s3://{self._config.bucket}/{wanted.full} has {got} of the {size_bytes} bytes from "
                f"{start} on; it is shorter than it should be"
            )

    def _copy(self, wanted: Wanted, fd: int, going_on: GoingOn) -> int:
        getter = self._fast()
        if getter is not None:
            try:
                return getter.copy(wanted, fd, going_on)
            except LeftToClientError:  # nothing was written yet
                pass
        got = 0
        for chunk in self._read_slowly(wanted):
            try:
                write_at(fd, chunk, wanted.start + got)
            except FileWriteError as exc:
                raise LocalStoreError(f"{wanted.full} cannot be written to its file: {exc}") from exc
            got += len(chunk)
            going_on(len(chunk))
        return got

    def read_many(self, wanted: Sequence[Whole], going_on: GoingOn) -> Iterator[bytes | BlobSyncError]:
        """See `blobsync.storage.many.read_many`. Several requests are under way at a time."""
        for item in wanted:
            checked_key(item.key)
        getter = self._fast()
        if getter is None:
            yield from one_by_one(self.read, wanted, going_on)
        else:
            yield from S3ManyReader(getter, self._config.prefix, self.read, going_on).read(wanted)

    def write(self, key: str, data: bytes | Path, *, going_on: GoingOn = go_on) -> None:
        """See `ObjectStore.write`. Sends a checksum, which the server compares where it can."""
        full = self._full(key)
        with self._in_our_words(full), opened(data) as source:
            self._boto3.uploader.send(full, source, going_on)

    def presigned(self, method: str, key: str, lifetime: timedelta) -> str:
        """The address of an object, with which anybody may do one thing until it expires. Asks nobody.

        Args:
            method: `GET`, `HEAD` or `PUT`.
            key: Of the object.
            lifetime: How long the address is valid, at most.

        Raises:
            InvalidKeyError: it is no key.
            BlobSyncError: there are no credentials.
        """
        return self._boto3.presigned(_SIGNED[method], self._full(key), lifetime)

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
                    yield ObjectInfo(
                        item["Key"].removeprefix(own), item["Size"], item["LastModified"].astimezone(UTC)
                    )

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        full = self._full(key)
        try:
            with self._in_our_words(full):
                self._client.delete_object(Bucket=self._config.bucket, Key=full)
        except BlobNotFoundError:
            return

    def delete_many(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete_many`. One by one where the server cannot take many at once."""
        waiting = iter([checked_key(key) for key in keys])
        while batch := list(islice(waiting, _DELETED_AT_A_TIME)):
            try:
                self._delete_batch(batch)
            except StoreRefusedError:
                for key in batch:
                    self.delete(key)

    def _delete_batch(self, batch: Sequence[str]) -> None:
        with self._in_our_words(None):
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
        with self._in_our_words(None):
            for found in self._boto3.unfinished.uploads(own + prefix):
                yield UnfinishedUpload(found.key.removeprefix(own), found.upload_id, found.age)

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        """See `ObjectStore.abandon_uploads`."""
        old = [found for found in self.unfinished_uploads(prefix) if found.age >= older_than]
        with self._in_our_words(None):
            # Not self._full: whoever made that key, its upload is to go.
            return sum(
                self._boto3.unfinished.abandon(self._config.prefix + found.key, found.upload_id)
                for found in old
            )

    def close(self) -> None:
        """Close the connections. Calls under way fail."""
        with self._making:
            if self._getter is not None:
                self._getter.close()
            if self._clients is not None:
                self._clients.close()

    def _fast(self) -> S3Getter | None:
        """Made at the first read, since it needs credentials, which may take a call to somewhere."""
        if not self._has_getter:
            with self._making:
                if not self._has_getter:
                    self._getter = direct_getter(self._config) or self._boto3.getter()
                    self._has_getter = True
        return self._getter

    @property
    def _boto3(self) -> S3Clients:
        """Made when it is needed first."""
        with self._making:
            if self._clients is None:
                from blobsync.storage.s3_client import S3Clients

                self._clients = S3Clients(self._config)
            return self._clients

    @property
    def _client(self) -> S3Client:
        return self._boto3.client

    def _read_slowly(self, wanted: Wanted) -> Iterator[bytes]:
        from blobsync.storage.s3_client_get import read_through_client

        return read_through_client(self._client, self._config, wanted)

    def _full(self, key: str) -> str:
        return self._config.prefix + checked_key(key)

    @contextmanager
    def _in_our_words(self, full: str | None) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        from blobsync.storage.s3_client_errors import translated

        try:
            yield
        except (BotoCoreError, ClientError) as exc:
            raise translated(exc, self._config, full) from exc
