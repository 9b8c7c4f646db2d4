"""Makes clients of boto3, and readers with what boto3 knows of places and keys."""

from __future__ import annotations

import base64
import hashlib
import threading
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.httpsession import get_cert_path
from botocore.loaders import Loader, create_loader

from blobsync.errors import BlobSyncConfigError
from blobsync.s3.client_answers import refuse_others, translated
from blobsync.s3.config import S3Config
from blobsync.s3.place import reader_at
from blobsync.s3.reader import S3Reader
from blobsync.s3.request import Credentials
from blobsync.s3.transport import Transport
from blobsync.s3.unfinished import S3Unfinished
from blobsync.s3.upload import S3Uploader

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_making_clients = threading.Lock()  # boto3's sessions are not thread-safe, its clients are


def load_models() -> None:
    """Read what clients know of S3, once for this process and its forks: 50 ms. Needs no credentials."""
    import boto3.s3.inject  # noqa: F401 - imported for its time

    loader = _loader(None)
    loader.load_data_with_path("endpoints")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", kind, api_version=None)
    for name in ("sdk-default-configuration", "partitions"):
        loader.load_data(name)


@cache
def _loader(data_path: str | None) -> Loader:
    """Keeps what it has read. One for each place that botocore was told to read from."""
    return create_loader(data_path)


class S3Clients:
    """A client and what uploads with it, and a reader made of the same settings and credentials.

    Args:
        config: Where, who, and how patiently.

    Raises:
        BlobSyncConfigError: no client can be made of it.
    """

    def __init__(self, config: S3Config) -> None:
        secret = config.secret_access_key
        self._config = config
        with _making_clients:
            core = botocore.session.get_session()
            try:
                core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
                self._session = boto3.session.Session(
                    aws_access_key_id=config.access_key_id,
                    aws_secret_access_key=secret.reveal() if secret is not None else None,
                    region_name=config.region,
                    botocore_session=core,
                )
                self.client: S3Client = self._session.client(
                    "s3", endpoint_url=config.endpoint_url, verify=config.ca_bundle, config=_settings(config)
                )
            except (BotoCoreError, ValueError) as exc:
                raise BlobSyncConfigError(f"no S3 client can be made for {config.where}: {exc}") from exc
            self.client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
            refuse_others(self.client.meta.events)
            self.unfinished = S3Unfinished(self.client, config)
            self.uploader = S3Uploader(self.client, config, self.unfinished)
            self._credentials = self._session.get_credentials()
            self._ca_bundle = config.ca_bundle or core.get_config_variable("ca_bundle")
            self._transport = Transport(config, self._ca_bundle)
            self.client.meta.events.register("before-send.s3", self._transport.send)

    def place(self) -> str:
        """What the addresses of objects begin with."""
        return self.presigned("get_object", "k", timedelta(hours=1)).partition("?")[0].removesuffix("k")

    def reader(self) -> S3Reader:
        """Make a reader.

        Raises:
            StoreAccessDeniedError: there are no credentials.
            BlobSyncConfigError: as of `reader_at`.
        """
        return reader_at(self._config, self.place(), self._ca_bundle or get_cert_path(True), self._who)

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()
        self._transport.close()

    def presigned(self, operation: str, full: str, lifetime: timedelta) -> str:
        """As the client spells it, which knows regions and styles of addressing. Asks nobody."""
        try:
            return self.client.generate_presigned_url(
                operation,
                Params={"Bucket": self._config.bucket, "Key": full},
                ExpiresIn=int(lifetime.total_seconds()),
            )
        except BotoCoreError as exc:
            raise translated(exc, self._config, None) from exc

    def _who(self) -> Credentials | None:
        """Credentials of this moment: those that expire are renewed first, when it is time."""
        if self._credentials is None:
            return None
        try:
            found = self._credentials.get_frozen_credentials()
        except BotoCoreError as exc:
            raise translated(exc, self._config, None) from exc
        return cast("Credentials", found) if found.access_key and found.secret_key else None


def _add_md5(params: dict[str, Any], **_: object) -> None:
    """Newer clients send a CRC32 with a batch of deletions, where many servers want the MD5 of old."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _settings(config: S3Config) -> Config:
    style = config.addressing_style
    if style == "auto":
        # For AWS as boto3's own "auto", but that spells presigned addresses without the region.
        style = "virtual" if config.endpoint_url is None else "path"
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": style},
        # Newer clients add checksums by default, which some servers refuse, store inside the object,
        # or answer with wrongly for ranges. Every byte is verified by its digest by whoever reads it.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=config.max_connections,
        retries={"mode": "standard", "total_max_attempts": config.max_attempts},
        connect_timeout=config.connect_timeout.total_seconds(),
        read_timeout=config.read_timeout.total_seconds(),
        tcp_keepalive=True,
    )
