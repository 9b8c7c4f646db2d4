"""What boto3's client gives and raises, in our words. `errors` does without boto3.

Answers that say "done" and are none of S3's are refused: cut to nothing on the way, or a gateway's own words.
boto3 takes them for what was asked: for a listing without entries, for an object that was written. A
collector that believes such a listing deletes what a publish counts on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.hooks import BaseEventHooks
from botocore.model import OperationModel

from blobsync.errors import BlobSyncError
from blobsync.s3.config import S3Config
from blobsync.s3.errors import answered, not_s3, unreachable, without_credentials

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)

_SAYS = {
    "CompleteMultipartUpload": "ETag",
    "CreateMultipartUpload": "UploadId",
    "HeadObject": "ETag",
    "ListMultipartUploads": "Bucket",
    "ListObjectsV2": "IsTruncated",
    "ListParts": "Bucket",
    "PutObject": "ETag",
    "UploadPart": "ETag",
}
"""What every right answer to an operation has. Some servers leave out whether a list of uploads is whole."""


class NotS3AnswerError(BotoCoreError):
    """An answer with a good status, without what S3 says in it."""

    fmt = "the answer to {operation} has no {field}, so it was cut on the way or is another's"


def refuse_others(events: BaseEventHooks) -> None:
    """Have a client's calls end with NotS3AnswerError where the answer cannot be S3's."""
    for operation in _SAYS:
        events.register(f"after-call.s3.{operation}", _check)


def translated(exc: BotoCoreError | ClientError, config: S3Config, key: str | None) -> BlobSyncError:
    """Turn an error of the S3 client into one of ours.

    Args:
        exc: As raised.
        config: What was asked.
        key: The whole key, prefix included; None: the bucket was asked for.
    """
    if isinstance(exc, ClientError):
        error = exc.response.get("Error", {})
        status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return answered(status, str(error.get("Code", "")), str(error.get("Message", "")), config, key)
    if isinstance(exc, _NO_CREDENTIALS):
        return without_credentials(str(exc), config, key)
    if isinstance(exc, NotS3AnswerError):
        return not_s3(exc, config, key)
    return unreachable(exc, config, key)


def _check(parsed: Mapping[str, Any], model: OperationModel, **_: object) -> None:
    status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    field = _SAYS[model.name]
    if status < 300 and field not in parsed:
        raise NotS3AnswerError(operation=model.name, field=field)
    # boto3 gives the status where there is no code. What is missing, a bucket or an upload, is then unknown.
    if status == 404 and model.name.startswith("List") and parsed.get("Error", {}).get("Code") == "404":
        raise NotS3AnswerError(operation=model.name, field="Code")
