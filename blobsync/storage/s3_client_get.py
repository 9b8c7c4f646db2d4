"""Reads objects through boto3: for answers that `s3_get` leaves to it. Slower, and knows every detour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from blobsync.errors import StoreUnavailableError
from blobsync.storage.ports import CHUNK_BYTES
from blobsync.storage.s3_client_errors import translated
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_range import NO_SUCH_RANGE, Wanted, given

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def read_through_client(client: S3Client, config: S3Config, wanted: Wanted) -> Iterator[bytes]:
    """The bytes of a range, as they come. Beyond the end of the object: none.

    Raises:
        BlobSyncError: as of `ObjectStore.read`.
    """
    header = wanted.header
    ranged: dict[str, Any] = {} if header is None else {"Range": header}
    try:
        answer = client.get_object(Bucket=config.bucket, Key=wanted.full, **ranged)
        found = given(answer.get("ContentRange"), answer["ContentLength"], wanted)
        if found is None:
            raise StoreUnavailableError(
                f"s3://{config.bucket}/{wanted.full}: {config.where} gave the range "
                f"{answer.get('ContentRange')!r}, not {header!r}; nothing of it was used"
            )
        skip, left = found
        with answer["Body"] as body:
            # Bounded reads: one read of everything returns short without a word when the server breaks off.
            while left and (chunk := body.read(min(CHUNK_BYTES, skip or left))):
                if skip:
                    skip -= len(chunk)
                    continue
                left -= len(chunk)
                yield chunk
        if left:
            raise StoreUnavailableError(
                f"s3://{config.bucket}/{wanted.full} broke off {left} bytes before its end; read it again"
            )
    except ClientError as exc:
        if exc.response["ResponseMetadata"]["HTTPStatusCode"] != NO_SUCH_RANGE or header is None:
            raise translated(exc, config, wanted.full) from exc
    except BotoCoreError as exc:
        raise translated(exc, config, wanted.full) from exc
