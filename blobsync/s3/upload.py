"""Uploads to S3: in one piece, or large ones in parts, which a later try continues.

Parts are sent by threads named `blobsync-upload`, which end with the upload. A part is read from its file
while it is sent, so an upload takes little memory. Each request carries the MD5 of its body, which old and
new servers compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from blobsync.bucket.ports import OnProgress, UnfinishedUpload
from blobsync.errors import (
    BlobSyncError,
    BucketAccessDeniedError,
    BucketMissingError,
    BucketRefusedError,
    LocalStoreError,
)
from blobsync.s3.client import translated
from blobsync.s3.config import MAX_PARTS, MIB, S3Config
from blobsync.s3.upload_source import SerialProgress, Slice, Source

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

_THREADS = 4
"""Number of parts of one object that are sent at a time."""
_LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}
"""Codes for: the upload does not exist any more, or another process wrote other parts to it."""
_FOR_GOOD = (BucketMissingError, LocalStoreError, BucketAccessDeniedError, BucketRefusedError)


class _OtherUploadError(Exception):
    """The unfinished upload that was found has other bytes than this one."""


class _StoredPart(NamedTuple):
    etag: str
    size_bytes: int


class _Upload(NamedTuple):
    full: str
    upload_id: str
    source: Source
    watched: SerialProgress
    known: Mapping[int, _StoredPart]


class S3Uploads:
    """Sends objects, and finds unfinished uploads. Thread-safe."""

    def __init__(self, client: S3Client, config: S3Config) -> None:
        self._client, self._config = client, config

    def send(self, full: str, source: Source, on_progress: OnProgress) -> None:
        """Send an object. See `ObjectStore.write`."""
        if source.size_bytes <= self._config.multipart_bytes:
            watched = SerialProgress(on_progress)
            self._send_whole(full, source, watched)
            watched.came(source.size_bytes)
            return
        if not self._taken_up(full, source, on_progress):
            self._send_in_parts(full, source, SerialProgress(on_progress), None)

    def unfinished(self, full_prefix: str) -> Iterator[UnfinishedUpload]:
        """Unfinished uploads of keys with a prefix. Their age is by the store's clock."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._config.bucket, Prefix=full_prefix
        )
        try:
            for page in pages:
                now = _store_time(page.get("ResponseMetadata", {}))
                for item in page.get("Uploads", []):
                    age = max(timedelta(0), now - item["Initiated"])
                    yield UnfinishedUpload(item["Key"], item["UploadId"], age)
        except ClientError as exc:
            if not _is_lost(exc):  # some servers answer that if there are none
                raise

    def abandon(self, full: str, upload_id: str) -> bool:
        """Remove an unfinished upload and its parts. False: it does not exist any more."""
        try:
            self._client.abort_multipart_upload(Bucket=self._config.bucket, Key=full, UploadId=upload_id)
        except ClientError as exc:
            if not _is_lost(exc):
                raise
            return False
        return True

    def _send_whole(self, full: str, source: Source, watched: SerialProgress) -> None:
        body = Slice(source, 0, source.size_bytes, watched)
        with _own_errors(watched):
            self._client.put_object(
                Bucket=self._config.bucket, Key=full, Body=body.file, ContentMD5=body.content_md5()
            )
        source.check_unchanged()

    def _taken_up(self, full: str, source: Source, on_progress: OnProgress) -> bool:
        """Continue an unfinished upload, or begin the first one. False: that upload cannot be used."""
        try:
            self._send_in_parts(full, source, SerialProgress(on_progress), self._latest(full))
        except _OtherUploadError:  # of other bytes for the same key: left alone
            return False
        except ClientError as exc:
            if not _is_lost(exc):
                raise
            return False
        return True

    def _latest(self, full: str) -> str | None:
        """Id of the latest unfinished upload of this key; None: there is none, or it may not be listed."""
        try:
            uploads = [upload for upload in self.unfinished(full) if upload.key == full]
        except ClientError as exc:
            if not isinstance(translated(exc, self._config, full), _FOR_GOOD):
                raise
            return None
        return min(uploads, key=lambda upload: upload.age).upload_id if uploads else None

    def _send_in_parts(
        self, full: str, source: Source, watched: SerialProgress, upload_id: str | None
    ) -> None:
        where: Any = {"Bucket": self._config.bucket, "Key": full}
        known = {} if upload_id is None else self._parts(full, upload_id)
        upload_id = upload_id or self._client.create_multipart_upload(**where)["UploadId"]
        try:
            parts = self._send_parts(_Upload(full, upload_id, source, watched, known))
            source.check_unchanged()
            self._client.complete_multipart_upload(
                **where, UploadId=upload_id, MultipartUpload={"Parts": parts}
            )
        except (BotoCoreError, ClientError, BlobSyncError) as exc:
            error = exc if isinstance(exc, BlobSyncError) else translated(exc, self._config, full)
            if isinstance(error, _FOR_GOOD):  # else the next try continues it
                with suppress(BotoCoreError, ClientError):
                    self.abandon(full, upload_id)
            raise

    def _parts(self, full: str, upload_id: str) -> dict[int, _StoredPart]:
        pages = self._client.get_paginator("list_parts").paginate(
            Bucket=self._config.bucket, Key=full, UploadId=upload_id
        )
        return {
            item["PartNumber"]: _StoredPart(item["ETag"], item["Size"])
            for page in pages
            for item in page.get("Parts", [])
        }

    def _send_parts(self, upload: _Upload) -> list[CompletedPartTypeDef]:
        """Send the parts that the store lacks. Returns all parts in order."""
        size = part_bytes_for(upload.source.size_bytes, self._config.part_bytes)
        starts = range(0, upload.source.size_bytes, size)
        waiting = iter(enumerate(starts, start=1))  # an iterator over a range is safe to share
        etags: dict[int, str] = {}

        def work() -> None:
            for number, start in waiting:
                part = Slice(
                    upload.source, start, min(size, upload.source.size_bytes - start), upload.watched
                )
                try:
                    etags[number] = self._send_part(upload, number, part)
                except BaseException as exc:
                    upload.watched.stop(exc)
                    raise

        threads = min(_THREADS, len(starts))
        with ThreadPoolExecutor(threads, thread_name_prefix="blobsync-upload") as pool:
            try:
                wait([pool.submit(work) for _ in range(threads)])
            except BaseException as exc:
                upload.watched.stop(exc)
                raise
        if upload.watched.stopped_by is not None:
            raise upload.watched.stopped_by
        return [{"PartNumber": number, "ETag": etags[number]} for number in range(1, len(starts) + 1)]

    def _send_part(self, upload: _Upload, number: int, part: Slice) -> str:
        """Send a part unless the store has it. Returns its ETag."""
        there = upload.known.get(number)
        if there is not None:
            if not _same(there, part):
                raise _OtherUploadError
            etag = there.etag
        else:
            with _own_errors(upload.watched):
                etag = self._client.upload_part(
                    Bucket=self._config.bucket,
                    Key=upload.full,
                    UploadId=upload.upload_id,
                    PartNumber=number,
                    Body=part.file,
                    ContentMD5=part.content_md5(),
                )["ETag"]
        upload.watched.came(part.size_bytes)
        return etag


def part_bytes_for(size_bytes: int, least: int) -> int:
    """Size of the parts of an object: `least`, or more whole MiB if 10,000 parts would not be enough."""
    needed = -(-size_bytes // MAX_PARTS)
    return max(least, -(-needed // MIB) * MIB)


def _same(there: _StoredPart, part: Slice) -> bool:
    """True if the store has the same bytes. Always False where the ETag is not an MD5."""
    return there.size_bytes == part.size_bytes and there.etag.strip('"') == part.md5().hex()


def _is_lost(exc: ClientError) -> bool:
    """True if the upload does not exist any more, or another process wrote other parts to it."""
    return str(exc.response.get("Error", {}).get("Code", "")) in _LOST


def _store_time(metadata: Mapping[str, Any]) -> datetime:
    """The store's time according to an answer; this host's time if the answer has none."""
    date = metadata.get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date) if date else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


@contextmanager
def _own_errors(watched: SerialProgress) -> Iterator[None]:
    """Raise the error that stopped the upload, not the error that the client makes of it."""
    try:
        yield
    except (BotoCoreError, ClientError):
        if watched.stopped_by is not None:
            raise watched.stopped_by from None
        raise
