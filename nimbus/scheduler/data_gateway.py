"""Signs URLs in the bucket of outputs for drivers in clusters, which have no credentials. API threads.

A URL is for one object and one method, and valid for 15 minutes. An attempt can write below the prefix of its
own output, and read there and in the outputs that its order names as inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from blobsync import BlobSyncError, InvalidKeyError
from nimbus.api.routes.attempts import DataRequest, SignedUrl
from nimbus.ports import StoreUnavailableError
from nimbus.worker.data.manifest import is_manifest, parts_of

LIFETIME = timedelta(minutes=15)
"""The holder of a URL can write for this long after END: a zombie to keys that no manifest names, and the
driver that ended also to its own objects. Readers compare digests."""


class Presigner(Protocol):
    """A bucket whose URLs can be signed."""

    def presigned(self, method: str, key: str, lifetime: timedelta) -> str:
        """The signed URL of an object for one method. It is computed without a request."""

    @property
    def write_headers(self) -> dict[str, str]:
        """Headers that a request with a URL for `PUT` must have."""


class DataGateway:
    """The bucket of outputs.

    Args:
        uri: `s3://bucket/prefix`, the same on all workers and schedulers.
        store: The bucket; keys are relative to `uri`.
    """

    def __init__(self, uri: str, store: Presigner) -> None:
        self._uri, self._store = uri, store

    def sign(self, request: DataRequest) -> SignedUrl | None:
        """The signed URL of an object; None: the attempt has no access to it.

        Raises:
            StoreUnavailableError: the object is in another bucket, or there are no credentials now.
        """
        if request.uri != self._uri:
            raise StoreUnavailableError(f"outputs are in {self._uri} here, not in {request.uri}")
        if not _may(request.method, request.key, request.output, request.inputs):
            return None
        try:
            url = self._store.presigned(request.method, request.key, LIFETIME)
        except InvalidKeyError:
            return None
        except BlobSyncError as exc:
            raise StoreUnavailableError(f"no address can be signed: {exc}") from exc
        return SignedUrl(url, self._store.write_headers if request.method == "PUT" else {})


def _may(method: str, key: str, output: str, inputs: Sequence[str]) -> bool:
    if key.startswith(f"{output}/"):
        return True
    return method != "PUT" and any(
        is_manifest(reference) and key.startswith(f"{parts_of(reference)[0]}/") for reference in inputs
    )
