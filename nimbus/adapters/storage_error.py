"""What the adapters of S3 say when it does not do what was asked."""

from __future__ import annotations

from nimbus.domain.errors import NimbusError


class StorageUnavailableError(NimbusError):
    """S3 did not do what was asked; it may later."""

    code = "storage_unavailable"
    retryable = True
    exit_code = 6
