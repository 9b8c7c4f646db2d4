"""Uploads in parts that S3 keeps until they are completed or removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from blobsync.bucket.ports import UnfinishedUpload
from blobsync.errors import BucketMissingError, LocalStoreError, StoreAccessDeniedError, StoreRefusedError
from blobsync.s3.client_answers import translated
from blobsync.s3.config import S3Config

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}
"""The upload is gone, or somebody else wrote other parts to it."""
FOR_GOOD = (BucketMissingError, LocalStoreError, StoreAccessDeniedError, StoreRefusedError)


class SentPart(NamedTuple):
    """A part that the store has."""

    number: int
    etag: str
    sha256: str | None


class KnownPart(NamedTuple):
    """A part of an unfinished upload."""

    sent: SentPart
    size_bytes: int


class S3Unfinished:
    """What is known of unfinished uploads. Thread-safe.

    Args:
        client: Of boto3.
        config: Where.
    """

    def __init__(self, client: S3Client, config: S3Config) -> None:
        self._client, self._config = client, config

    def uploads(self, full_prefix: str) -> Iterator[UnfinishedUpload]:
        """Uploads of whole keys that begin so. Aged by the store's own clock.

        Raises:
            BotoCoreError, ClientError: of the client.
        """
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
            if not is_lost(exc):  # some servers say so of none at all
                raise

    def latest(self, full: str) -> str | None:
        """Name the latest unfinished upload of this very key; None: there is none, or we may not know."""
        try:
            found = [upload for upload in self.uploads(full) if upload.key == full]
        except ClientError as exc:
            if not isinstance(translated(exc, self._config, full), FOR_GOOD):
                raise
            return None
        return min(found, key=lambda upload: upload.age).upload_id if found else None

    def parts(self, full: str, upload_id: str) -> dict[int, KnownPart]:
        """What an unfinished upload has."""
        pages = self._client.get_paginator("list_parts").paginate(
            Bucket=self._config.bucket, Key=full, UploadId=upload_id
        )
        return {
            item["PartNumber"]: KnownPart(
                SentPart(item["PartNumber"], item["ETag"], item.get("ChecksumSHA256")), item["Size"]
            )
            for page in pages
            for item in page.get("Parts", [])
        }

    def abandon(self, full: str, upload_id: str) -> bool:
        """Remove an upload and its parts. False: it is gone already.

        Raises:
            BotoCoreError, ClientError: of the client.
        """
        try:
            self._client.abort_multipart_upload(Bucket=self._config.bucket, Key=full, UploadId=upload_id)
        except ClientError as exc:
            if not is_lost(exc):
                raise
            return False
        return True


def is_lost(exc: ClientError) -> bool:
    """Whether the upload is gone, or somebody else wrote other parts to it."""
    return str(exc.response.get("Error", {}).get("Code", "")) in _LOST


def _store_time(metadata: Mapping[str, Any]) -> datetime:
    """The store's clock as of an answer; ours where it does not tell."""
    told = metadata.get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(told) if told else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)
