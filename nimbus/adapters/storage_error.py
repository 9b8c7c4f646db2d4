"""The error of the S3 adapters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from blobsync import BlobSyncError
from nimbus.domain.errors import NimbusError


class StorageUnavailableError(NimbusError):
    """S3 did not execute a request; a retry may succeed."""

    code = "storage_unavailable"
    retryable = True
    exit_code = 6


@contextmanager
def or_unavailable(what: str) -> Iterator[None]:
    """Translate errors of `blobsync`; `what` begins their message, such as "history cannot be listed"."""
    try:
        yield
    except BlobSyncError as exc:
        raise StorageUnavailableError(f"{what}: {exc}") from exc
