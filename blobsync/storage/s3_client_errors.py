"""Errors of boto3 in our words. Apart from `s3_errors`, which does without boto3."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from blobsync.errors import BlobSyncError
from blobsync.storage.s3_answers import NotS3AnswerError
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_errors import answered, not_s3, unreachable, without_credentials

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


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
