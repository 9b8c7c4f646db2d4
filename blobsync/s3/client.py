"""Makes clients of boto3, and readers with boto3's settings; translates errors of boto3.

An answer with a good status that does not come from S3 is refused, such as an empty answer or the page of a
gateway. boto3 would take it for a listing without entries, or for an object that was written. A collection
with such a listing would delete objects that a publish relies on.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PaginationError,
    PartialCredentialsError,
)
from botocore.httpsession import get_cert_path
from botocore.loaders import JSONFileLoader, Loader, create_loader
from botocore.model import OperationModel
from botocore.parsers import ResponseParserError, ResponseParserFactory

from blobsync.errors import BlobSyncConfigError, BlobSyncError
from blobsync.s3.config import S3Config
from blobsync.s3.errors import (
    REDIRECTS,
    answered,
    not_now,
    not_s3,
    redirected,
    unreachable,
    without_credentials,
)
from blobsync.s3.messages import Credentials
from blobsync.s3.reader import S3Reader, reader_at
from blobsync.s3.transport import Transport

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_s3.client import S3Client

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError)

_REQUIRED_FIELDS = {
    "CompleteMultipartUpload": ("ETag",),
    "CreateMultipartUpload": ("UploadId",),
    "HeadObject": ("ETag", "ContentLength"),
    "ListMultipartUploads": ("Bucket",),
    "ListObjectsV2": ("IsTruncated",),
    "ListParts": ("Bucket",),
    "PutObject": ("ETag",),
    "UploadPart": ("ETag",),
}
"""Fields that every valid answer to an operation has. Some servers omit IsTruncated in lists of uploads."""
_NEXT_PAGE = {
    "ListMultipartUploads": "NextKeyMarker",
    "ListObjectsV2": "NextContinuationToken",
    "ListParts": "NextPartNumberMarker",
}
"""The field of a truncated page that asks for the next one. Without it boto3 ends the listing in silence."""

_SERVICES = ("s3", "sts", "sso", "oidc", "portal.sso", "signin")
"""Services whose endpoints a client of S3 uses, or a provider of its credentials."""

_MAKES_OBJECTS = ("CreateMultipartUpload", "PutObject")

_making_clients = threading.Lock()  # boto3's sessions are not thread-safe, its clients are


def load_models() -> None:
    """Load boto3's models of S3 once for this process and its forks: 50 ms. Needs no credentials."""
    import boto3.s3.inject  # noqa: F401 - imported for its time

    loader = _loader(None)
    loader.load_data_with_path("endpoints")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", kind, api_version=None)
    for name in ("sdk-default-configuration", "partitions"):
        loader.load_data(name)


@cache
def _loader(data_path: str | None) -> Loader:
    """One loader for each `data_path` of botocore. It keeps what it has read."""
    loader = create_loader(data_path)
    loader.file_loader = _ModelFiles()
    return loader


class _ModelFiles(JSONFileLoader):
    """Reads files of botocore as plain dictionaries, and of "endpoints" only what S3 and credentials need.

    That takes 6 MiB of memory instead of 14.
    """

    def load_file(self, file_path: str) -> Any:
        for suffix, opened in ((".json", open), (".json.gz", gzip.open)):
            with suppress(FileNotFoundError), opened(file_path + suffix, "rb") as file:
                return _needed(json.load(file))
        return None


def _needed(data: Any) -> Any:
    """The data of a file, without endpoints of services that neither S3 nor credentials use."""
    for partition in data.get("partitions", ()) if isinstance(data, dict) else ():
        services = partition.get("services", {})
        partition["services"] = {name: services[name] for name in _SERVICES if name in services}
    return data


class NotS3AnswerError(BotoCoreError):
    """An answer with a good status that no server of S3 gives."""

    fmt = "the answer to {operation} {fault}, so it was cut on the way or is not the server's"


class RedirectedError(BotoCoreError):
    """The server sends the client to another address. boto3 asks it for a region instead, without end."""

    fmt = "{location}"


class _ParserFactory(ResponseParserFactory):
    """Parsers of boto3 that raise NotS3AnswerError where boto3's own raise errors of Python."""

    def create_parser(self, protocol_name: str) -> Any:
        parser = super().create_parser(protocol_name)
        parse = parser.parse

        def parsed(response: Mapping[str, Any], shape: Any) -> Any:
            try:
                return parse(response, shape)
            except (ResponseParserError, ValueError, TypeError, KeyError, RecursionError) as exc:
                operation = shape.name.removesuffix("Output") if shape is not None else "the request"
                raise NotS3AnswerError(operation=operation, fault=f"cannot be parsed ({exc!r:.200})") from exc

        parser.parse = parsed  # type: ignore[method-assign]
        return parser


class S3Clients:
    """A client, and a reader made of the same settings and credentials.

    Raises:
        BlobSyncConfigError: no client can be made of it.
        BucketUnavailableError: what gives the credentials, such as a role's endpoint, does not answer now.
    """

    def __init__(self, config: S3Config) -> None:
        secret = config.secret_access_key
        self._config = config
        with _making_clients:
            core = botocore.session.get_session()
            try:
                core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
                core.register_component("response_parser_factory", _ParserFactory())
                self._session = boto3.session.Session(
                    aws_access_key_id=config.access_key_id,
                    aws_secret_access_key=secret.reveal() if secret is not None else None,
                    region_name=config.region,
                    botocore_session=core,
                )
                self.client: S3Client = self._session.client(
                    "s3", endpoint_url=config.endpoint_url, verify=config.ca_bundle, config=_settings(config)
                )
            except CredentialRetrievalError as exc:
                raise translated(exc, config, None) from exc
            except (BotoCoreError, ValueError) as exc:
                raise BlobSyncConfigError(f"no S3 client can be made for {config.where}: {exc}") from exc
            self.client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
            for operation in _REQUIRED_FIELDS:
                self.client.meta.events.register(f"after-call.s3.{operation}", _refuse_foreign_answer)
            for operation in _MAKES_OBJECTS:
                self.client.meta.events.register(f"before-parameter-build.s3.{operation}", self._encrypt)
            self._credentials = self._session.get_credentials()
            self._ca_bundle = config.ca_bundle or core.get_config_variable("ca_bundle")
            self._transport = Transport(config, self._ca_bundle)
            self.client.meta.events.register("before-send.s3", self._send)

    def base_url(self) -> str:
        """Prefix of the URLs of objects."""
        return self.presigned("get_object", "k", timedelta(hours=1)).partition("?")[0].removesuffix("k")

    def reader(self) -> S3Reader:
        """Make a reader. BucketAccessDeniedError if there are no credentials."""
        return reader_at(self._config, self.base_url(), self._ca_bundle or get_cert_path(True), self._who)

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()
        self._transport.close()

    def presigned(self, operation: str, full: str, lifetime: timedelta) -> str:
        """A presigned URL. boto3 knows the region and the style of addressing. Makes no request."""
        with translating_errors(self._config, None):
            return self.client.generate_presigned_url(
                operation,
                Params={"Bucket": self._config.bucket, "Key": full},
                ExpiresIn=int(lifetime.total_seconds()),
            )

    def _encrypt(self, params: dict[str, Any], **_: object) -> None:
        """Handle `before-parameter-build`: ask for encryption, also in presigned URLs."""
        asked = {"ServerSideEncryption": self._config.encryption, "SSEKMSKeyId": self._config.kms_key_id}
        params.update({name: value for name, value in asked.items() if value is not None})

    def _send(self, request: AWSPreparedRequest, **_: object) -> Any:
        """Handle `before-send`: answer in place of boto3's own HTTP client.

        RedirectedError for a redirect, except that of AWS to another region, which boto3 follows.
        """
        answer = self._transport.send(request)
        if answer.status_code in REDIRECTS and "x-amz-bucket-region" not in answer.headers:
            raise RedirectedError(location=answer.headers.get("location", ""))
        return answer

    def _who(self) -> Credentials | None:
        """The credentials now. Those that expire soon are renewed first."""
        if self._credentials is None:
            return None
        try:
            credentials = self._credentials.get_frozen_credentials()
        except BotoCoreError as exc:
            raise translated(exc, self._config, None) from exc
        if not credentials.access_key or not credentials.secret_key:
            return None
        return Credentials(credentials.access_key, credentials.secret_key, credentials.token)


@contextmanager
def translating_errors(config: S3Config, key: str | None) -> Iterator[None]:
    """Raise errors of the S3 client as `translated` gives them."""
    try:
        yield
    except (BotoCoreError, ClientError) as exc:
        raise translated(exc, config, key) from exc


def translated(exc: BotoCoreError | ClientError, config: S3Config, key: str | None) -> BlobSyncError:
    """Translate an error of the S3 client.

    `key` is the whole key, prefix included; None: the request was about the bucket.
    """
    if isinstance(exc, ClientError):
        error = exc.response.get("Error", {})
        status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return answered(status, str(error.get("Code", "")), str(error.get("Message", "")), config, key)
    if isinstance(exc, _NO_CREDENTIALS):
        return without_credentials(str(exc), config, key)
    if isinstance(exc, CredentialRetrievalError):
        return not_now(f"the credentials cannot be fetched: {exc}", config, key)
    if isinstance(exc, RedirectedError):
        return redirected(str(exc), config, key)
    if isinstance(exc, NotS3AnswerError | PaginationError):
        return not_s3(str(exc), config, key)
    return unreachable(exc, config, key)


def _refuse_foreign_answer(parsed: Mapping[str, Any], model: OperationModel, **_: object) -> None:
    """Raise NotS3AnswerError if the answer cannot come from S3."""
    status, operation = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), model.name
    lacks = [field for field in _REQUIRED_FIELDS[operation] if field not in parsed]
    if status < 300 and lacks:
        raise NotS3AnswerError(operation=operation, fault=f"has no {lacks[0]}")
    # boto3 sets the status as the code if there is no code. Then it is not known what is missing.
    if status == 404 and operation.startswith("List") and parsed.get("Error", {}).get("Code") == "404":
        raise NotS3AnswerError(operation=operation, fault="has no Code")
    if parsed.get("IsTruncated") and not parsed.get(_NEXT_PAGE[operation]):
        raise NotS3AnswerError(
            operation=operation, fault=f"says that more follows, and has no {_NEXT_PAGE[operation]}"
        )


def _add_md5(params: dict[str, Any], **_: object) -> None:
    """Add an MD5 to a batch of deletions: newer versions of boto3 send a CRC32, which many servers refuse."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _settings(config: S3Config) -> Config:
    style = config.addressing_style
    if style == "auto":
        # As boto3's own "auto", which for AWS leaves the region out of presigned URLs.
        style = "virtual" if config.endpoint_url is None else "path"
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": style},
        # Newer clients add checksums by default, which some servers refuse, store inside the object,
        # or answer wrongly for ranges. The reader of an object verifies every byte by its digest.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=config.max_connections,
        retries={"mode": "standard", "total_max_attempts": config.max_attempts},
        connect_timeout=config.connect_timeout.total_seconds(),
        read_timeout=config.read_timeout.total_seconds(),
        tcp_keepalive=True,
    )
