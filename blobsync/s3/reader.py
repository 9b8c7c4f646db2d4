"""Reads objects over its own connections, with requests that it signs. boto3 does everything else.

boto3 and its client take some 30 MiB and a fifth of a second. A process never imports them if it only reads,
from an endpoint whose URL is configured, with keys that do not expire. Only boto3 knows regions of AWS,
profiles, roles and keys that expire: see `S3Clients.reader`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlsplit

from blobsync.bucket.ports import PIECE_BYTES, OnProgress, ignore_progress
from blobsync.errors import BlobSyncError, BucketUnavailableError, LocalStoreError
from blobsync.retry import RetryPolicy
from blobsync.s3.config import S3Config
from blobsync.s3.connection import Connection, ConnectionPool, FileWriteError
from blobsync.s3.endpoint import endpoint_at, host_header
from blobsync.s3.errors import REDIRECTS, answered, not_s3, redirected, unreachable, without_credentials
from blobsync.s3.messages import (
    NO_SUCH_RANGE,
    BodySlice,
    ByteRange,
    Credentials,
    GetSigner,
    Head,
    HttpError,
    body_slice,
    code_and_message,
    encoded,
    static_credentials,
)

_OK, _PARTIAL = 200, 206
_COMPRESSED = {"br", "deflate", "gzip", "x-gzip", "zstd"}
"""Content-Encodings of an answer that was changed on the way."""
_SHORT_BYTES = 64 << 10
_FIRST_NAME = "list-type=2&max-keys=1"
_REGION_LETTERS = 63
_PLAIN_BUCKET = re.compile(r"(?!.*--)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""No ARN, and no special bucket of AWS, whose names have a suffix such as `--ol-s3`."""
_WAITS = RetryPolicy(first_wait=timedelta(seconds=0.2), max_wait=timedelta(seconds=1))

Result = TypeVar("Result")


class S3Reader:
    """Gets objects. Thread-safe.

    Args:
        path: Prefix of paths, before the key: `/bucket/`, or `/` where the host names the bucket.
        credentials: Returns the current ones; None: there are none. Its exceptions pass through.
    """

    def __init__(
        self,
        config: S3Config,
        pool: ConnectionPool,
        path: str,
        signer: GetSigner,
        credentials: Callable[[], Credentials | None],
    ) -> None:
        self._config, self._pool, self._path = config, pool, path
        self._signer, self._credentials = signer, credentials

    def read(self, wanted: ByteRange) -> Iterator[bytes]:
        """Stream a range. Beyond the end of the object it is empty."""
        with self._asked(wanted, ignore_progress) as (connection, answer):
            left = answer.size_bytes
            while left:
                piece = connection.take(min(left, PIECE_BYTES), ignore_progress)
                left -= len(piece)
                yield piece

    def copy(self, wanted: ByteRange, fd: int, on_progress: OnProgress) -> int:
        """Write a range, cut at the end of the object, into a file. Returns how many bytes it has."""
        with self._asked(wanted, on_progress) as (connection, answer):
            if wanted.size_bytes is not None and answer.size_bytes < wanted.size_bytes:
                return answer.size_bytes
            offset, end = wanted.start, wanted.start + answer.size_bytes
            while offset < end:
                size = connection.fill(fd, offset, min(end - offset, PIECE_BYTES), on_progress)
                offset += size
                on_progress(size)
            return answer.size_bytes

    def check(self) -> None:
        """Ask for the first name in the bucket."""
        path = self._path.rstrip("/") or "/"
        connection, _ = self._answer(
            lambda: self._request(path, None, None, _FIRST_NAME), None, self._let_in, ignore_progress
        )
        self._pool.give_back(connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    @contextmanager
    def _asked(self, wanted: ByteRange, on_progress: OnProgress) -> Iterator[tuple[Connection, BodySlice]]:
        """A connection at the first byte of the range. At the end it is returned to the pool, or closed."""
        path = self._path + encoded(wanted.full)
        connection, answer = self._answer(
            lambda: self._request(path, wanted.full, wanted.header),
            wanted.full,
            lambda connection, head: self._understood(connection, head, wanted, on_progress),
            on_progress,
        )
        try:
            skip = answer.skip_bytes
            while skip:
                skip -= len(connection.take(skip, on_progress))
            yield connection, answer
        except BaseException as exc:
            # Not returned to the pool: an unfinished generator may be closed while the pool is locked.
            connection.close()
            if isinstance(exc, HttpError):
                raise unreachable(exc, self._config, wanted.full) from exc
            if isinstance(exc, FileWriteError):
                raise LocalStoreError(f"{wanted.full} cannot be written to its file: {exc}") from exc
            raise
        self._pool.give_back(connection)

    def _answer(
        self,
        request: Callable[[], bytes],
        key: str | None,
        understand: Callable[[Connection, Head], Result],
        on_progress: OnProgress,
    ) -> tuple[Connection, Result]:
        """Send a request until the answer is right, at most `max_attempts` times."""
        for attempt in range(1, self._config.max_attempts + 1):
            try:
                return self._answer_once(request(), key, understand, on_progress)
            except BlobSyncError as exc:
                if not exc.retryable or attempt == self._config.max_attempts:
                    raise
            time.sleep(_WAITS.wait_s(attempt))
        raise AssertionError("max_attempts is at least 1")

    def _let_in(self, connection: Connection, head: Head) -> None:
        if head.status != _OK:
            raise self._refusal(connection, head, None, ignore_progress)
        told = connection.take_short(head, _SHORT_BYTES, ignore_progress)
        if b"ListBucketResult" not in told:
            raise not_s3(f"it is no listing of the bucket: {told[:80]!r}", self._config, None)

    def _answer_once(
        self,
        request: bytes,
        key: str | None,
        understand: Callable[[Connection, Head], Result],
        on_progress: OnProgress,
    ) -> tuple[Connection, Result]:
        """Send a request once. After an error, the connection is returned to the pool, which closes it."""
        try:
            connection, head = self._pool.ask(request, on_progress)
            try:
                return connection, understand(connection, head)
            except BaseException:
                self._pool.give_back(connection)
                raise
        except HttpError as exc:
            raise unreachable(exc, self._config, key) from exc

    def _request(self, path: str, key: str | None, ranged: str | None, query: str = "") -> bytes:
        who = self._credentials()
        if who is None:
            raise without_credentials("none were found", self._config, key)
        return self._signer.request(path, ranged, who, time.time(), query)

    def _understood(
        self, connection: Connection, head: Head, wanted: ByteRange, on_progress: OnProgress
    ) -> BodySlice:
        """The bytes of the body that belong to the range. The connection is at the start of the body.

        HttpError if the answer broke off; BlobSyncError if it is an error, or for another range.
        """
        if head.status not in {_OK, _PARTIAL}:
            refusal = self._refusal(connection, head, wanted.full, on_progress)
            if head.status == NO_SUCH_RANGE and wanted.header is not None:
                return BodySlice(0, 0)
            raise refusal
        content_range, size_bytes = head.headers.get("content-range"), head.size_bytes
        if (coding := head.headers.get("content-encoding", "")) in _COMPRESSED:
            raise not_s3(f"it is compressed ({coding}), which was not asked for", self._config, wanted.full)
        if size_bytes is None:
            raise not_s3("it does not say how long it is", self._config, wanted.full)
        answer = None
        if head.status == _OK or content_range is not None:
            answer = body_slice(content_range, size_bytes, wanted)
        if answer is None:
            raise BucketUnavailableError(
                f"s3://{self._config.bucket}/{wanted.full}: {self._config.where} gave another range than it "
                f"was asked for ({content_range!r} and {size_bytes} bytes, not "
                f"{wanted.header!r}); nothing of it was used"
            )
        return answer

    def _refusal(
        self, connection: Connection, head: Head, key: str | None, on_progress: OnProgress
    ) -> BlobSyncError:
        """Turn an answer into an error. Reads its body, so that the connection can be used again."""
        code, message = code_and_message(connection.take_short(head, _SHORT_BYTES, on_progress))
        region = head.headers.get("x-amz-bucket-region", "")[:_REGION_LETTERS]
        if head.status in REDIRECTS and not region:
            return redirected(head.headers.get("location", ""), self._config, key)
        if head.status in REDIRECTS:
            message = f"the bucket is in region {region!r}: set `region` to it. {message}"
        return answered(head.status, code, message, self._config, key)


def base_url_without_boto3(config: S3Config) -> str | None:
    """Prefix of the URLs of objects; None: only boto3 knows it."""
    if config.endpoint_url is None or config.addressing_style == "virtual":
        return None
    url = urlsplit(config.endpoint_url)
    if url.path.strip("/") or url.query or url.fragment or _PLAIN_BUCKET.fullmatch(config.bucket) is None:
        return None
    return f"{url.scheme}://{url.netloc}/{config.bucket}/"


def reader_without_boto3(config: S3Config, environ: Mapping[str, str] = os.environ) -> S3Reader | None:
    """Make a reader; None: only boto3 knows the URL or the keys."""
    who, base_url = static_credentials(config, environ), base_url_without_boto3(config)
    trusted = config.ca_bundle or environ.get("AWS_CA_BUNDLE")
    if who is None or base_url is None:
        return None
    if base_url.startswith("https:") and trusted is None:  # the configuration of boto3 may name some
        return None
    return reader_at(config, base_url, trusted, lambda: who)


def reader_at(
    config: S3Config, base_url: str, trusted: str | None, who: Callable[[], Credentials | None]
) -> S3Reader:
    """Make a reader of objects below a URL, `scheme://host[:port]/path/`, to which keys are added.

    `trusted` is a file of authorities for https; `who` returns the credentials.
    """
    url = urlsplit(base_url)
    endpoint = endpoint_at(url, config, trusted)
    proxy = endpoint.proxy
    return S3Reader(
        config,
        ConnectionPool(endpoint, config.max_connections),
        url.path,
        GetSigner(host_header(url), config.region, proxy.header if proxy and not endpoint.tls else None),
        who,
    )
