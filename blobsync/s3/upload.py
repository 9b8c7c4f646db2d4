"""Uploads to S3: in one piece, or large ones in parts that a later try takes up.

Parts are sent by threads named `blobsync-upload`, which end with the upload. A part is read from its file
while it is sent, so an upload takes no memory to speak of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from blobsync.bucket.ports import OnProgress
from blobsync.errors import (
    BlobSyncError,
)
from blobsync.s3.client_answers import translated
from blobsync.s3.config import MIB, MOST_PARTS, S3Config
from blobsync.s3.unfinished import FOR_GOOD, KnownPart, S3Unfinished, SentPart, is_lost
from blobsync.s3.upload_source import Slice, Source, Watched, base64_of

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef


class _OtherUploadError(Exception):
    """The unfinished upload that was found has other bytes than ours."""


class _Upload(NamedTuple):
    """An upload under way."""

    full: str
    upload_id: str
    source: Source
    watched: Watched
    known: Mapping[int, KnownPart]


class S3Uploader:
    """Sends objects. Thread-safe.

    Args:
        client: Of boto3.
        config: Where to, and in which pieces.
        unfinished: Of the same client.
    """

    def __init__(self, client: S3Client, config: S3Config, unfinished: S3Unfinished) -> None:
        self._client, self._config, self._unfinished = client, config, unfinished

    def send(self, full: str, source: Source, on_progress: OnProgress) -> None:
        """Send an object. See `ObjectStore.write`.

        Raises:
            BotoCoreError, ClientError: of the client.
            BlobSyncError: of the source.
        """
        if source.size_bytes <= self._config.multipart_bytes:
            watched = Watched(on_progress)
            self._send_whole(full, source, watched)
            watched.came(source.size_bytes)
            return
        if not self._taken_up(full, source, on_progress):
            self._send_in_parts(full, source, Watched(on_progress), None)

    def _taken_up(self, full: str, source: Source, on_progress: OnProgress) -> bool:
        """Send it as part of an unfinished upload, or a first one. False: that one is not to be had."""
        try:
            self._send_in_parts(full, source, Watched(on_progress), self._unfinished.latest(full))
        except _OtherUploadError:  # somebody else's, or what this key was to be before: left alone
            return False
        except ClientError as exc:
            if not is_lost(exc):
                raise
            return False
        return True

    def _send_whole(self, full: str, source: Source, watched: Watched) -> None:
        body = Slice(source, 0, source.size_bytes, watched)
        checksum = self._checksum(body)
        with _own_errors(watched):
            self._client.put_object(Bucket=self._config.bucket, Key=full, Body=body.file, **checksum)
        source.check_unchanged()

    def _send_in_parts(self, full: str, source: Source, watched: Watched, upload_id: str | None) -> None:
        known = {} if upload_id is None else self._unfinished.parts(full, upload_id)
        upload_id = upload_id or self._begin(full)
        try:
            parts = self._send_parts(_Upload(full, upload_id, source, watched, known))
            source.check_unchanged()
            self._client.complete_multipart_upload(
                Bucket=self._config.bucket,
                Key=full,
                UploadId=upload_id,
                MultipartUpload={"Parts": [_named(part) for part in parts]},
            )
        except (BotoCoreError, ClientError, BlobSyncError) as exc:
            error = exc if isinstance(exc, BlobSyncError) else translated(exc, self._config, full)
            if isinstance(error, FOR_GOOD):  # else the next try takes it up
                with suppress(BotoCoreError, ClientError):
                    self._unfinished.abandon(full, upload_id)
            raise

    def _send_parts(self, upload: _Upload) -> list[SentPart]:
        """Send what the store does not have. In order."""
        size = part_bytes_for(upload.source.size_bytes, self._config.part_bytes)
        starts = range(0, upload.source.size_bytes, size)
        waiting = iter(enumerate(starts, start=1))  # an iterator over a range is safe to share
        sent: dict[int, SentPart] = {}

        def work() -> None:
            for number, start in waiting:
                part = Slice(
                    upload.source, start, min(size, upload.source.size_bytes - start), upload.watched
                )
                try:
                    sent[number] = self._send_part(upload, number, part)
                except BaseException as exc:
                    upload.watched.stop(exc)
                    raise

        threads = min(self._config.upload_threads, len(starts))
        with ThreadPoolExecutor(threads, thread_name_prefix="blobsync-upload") as pool:
            try:
                wait([pool.submit(work) for _ in range(threads)])
            except BaseException as exc:
                upload.watched.stop(exc)
                raise
        if upload.watched.stopped_by is not None:
            raise upload.watched.stopped_by
        return [sent[number] for number in range(1, len(starts) + 1)]

    def _send_part(self, upload: _Upload, number: int, part: Slice) -> SentPart:
        there = upload.known.get(number)
        if there is not None and not self._same(there, part):
            raise _OtherUploadError
        if there is None:
            checksum = self._checksum(part)
            with _own_errors(upload.watched):
                answer = self._client.upload_part(
                    Bucket=self._config.bucket,
                    Key=upload.full,
                    UploadId=upload.upload_id,
                    PartNumber=number,
                    Body=part.file,
                    **checksum,
                )
            there = KnownPart(
                SentPart(number, answer["ETag"], checksum.get("ChecksumSHA256")), part.size_bytes
            )
        upload.watched.came(part.size_bytes)
        return there.sent

    def _same(self, there: KnownPart, part: Slice) -> bool:
        """Whether the store has these very bytes. Where ETags are no MD5, it never seems so."""
        if there.size_bytes != part.size_bytes:
            return False
        with_sha256 = self._config.upload_checksum == "sha256"
        if with_sha256 and there.sent.sha256 != base64_of(part.digest("sha256")):
            return False
        return there.sent.etag.strip('"') == part.digest("md5").hex()

    def _checksum(self, body: Slice) -> dict[str, Any]:
        match self._config.upload_checksum:
            case "md5":
                return {"ContentMD5": base64_of(body.digest("md5"))}
            case "sha256":
                return {"ChecksumSHA256": base64_of(body.digest("sha256"))}
            case "none":
                return {}

    def _begin(self, full: str) -> str:
        with_sha256: dict[str, Any] = (
            {"ChecksumAlgorithm": "SHA256"} if self._config.upload_checksum == "sha256" else {}
        )
        answer = self._client.create_multipart_upload(Bucket=self._config.bucket, Key=full, **with_sha256)
        return answer["UploadId"]


def part_bytes_for(size_bytes: int, least: int) -> int:
    """How large the parts of an object are: `least`, or whole MiB where 10,000 such do not suffice."""
    needed = -(-size_bytes // MOST_PARTS)
    return max(least, -(-needed // MIB) * MIB)


def _named(part: SentPart) -> CompletedPartTypeDef:
    named: CompletedPartTypeDef = {"PartNumber": part.number, "ETag": part.etag}
    if part.sha256 is not None:
        named["ChecksumSHA256"] = part.sha256
    return named


@contextmanager
def _own_errors(watched: Watched) -> Iterator[None]:
    """Raise what stopped us, not what the client makes of it."""
    try:
        yield
    except (BotoCoreError, ClientError):
        if watched.stopped_by is not None:
            raise watched.stopped_by from None
        raise
