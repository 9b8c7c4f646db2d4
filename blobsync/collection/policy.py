"""What a collection keeps, and how careful it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from blobsync.errors import BlobSyncConfigError
from blobsync.storage.leases import MAX_TTL


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPolicy:
    """Checked once, here, then trusted.

    Args:
        grace: At least so long between condemning and deleting, by the store's clock.
        min_age: Objects that were written more recently are never condemned: nothing may point at them yet.
            Longer than the longest publish.
        keep_age: Releases that were published more recently are kept; at least `min_age`.
        keep_newest: So many of the newest releases of each name are kept.
        max_share: Of the objects, and of the bytes; a run that would delete more deletes nothing.
        patience: How long to wait for publishes to end before the deletion is left to a later run.
    """

    grace: timedelta = timedelta(hours=24)
    min_age: timedelta = timedelta(hours=24)
    keep_age: timedelta = timedelta(days=14)
    keep_newest: int = 10
    max_share: float = 0.2
    patience: timedelta = timedelta(minutes=2)

    def __post_init__(self) -> None:
        for name, value in (("grace", self.grace), ("min_age", self.min_age)):
            if value < MAX_TTL:
                raise BlobSyncConfigError(
                    f"{name} ({value}) must be at least {MAX_TTL}, which is how long a lease may count"
                )
        if self.keep_age < self.min_age:
            raise BlobSyncConfigError(
                f"keep_age ({self.keep_age}) must be at least min_age ({self.min_age}), or a release could "
                f"lose its files before it is old enough to go itself"
            )
        if self.patience < timedelta(0):
            raise BlobSyncConfigError(f"patience ({self.patience}) must not be negative")
        if self.keep_newest < 0:
            raise BlobSyncConfigError(f"keep_newest ({self.keep_newest}) must not be negative")
        if not 0 < self.max_share <= 1:
            raise BlobSyncConfigError(f"max_share ({self.max_share}) must be above 0 and at most 1")
