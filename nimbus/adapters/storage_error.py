"""The error of the S3 adapters."""

from __future__ import annotations

from nimbus.domain.errors import NimbusError


class StorageUnavailableError(NimbusError):
    """S3 did not execute a request; a retry may succeed."""

    code = "storage_unavailable"
    retryable = True
    exit_code = 6
