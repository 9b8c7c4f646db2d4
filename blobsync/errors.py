"""Every error of this package. One root, stable codes, and a word on what to do."""

from __future__ import annotations


class BlobSyncError(Exception):
    """Root of all errors raised by `blobsync`.

    Attributes:
        code: Stable, for machines; the message is for people and may change.
        retryable: Whether the same call may succeed later without anybody changing anything.
    """

    code = "blobsync"
    retryable = False


class BlobSyncConfigError(BlobSyncError):
    """A setting that cannot work. The message holds the value and says what to change."""

    code = "blobsync_config"


class InvalidKeyError(BlobSyncError):
    """A key that object stores disagree about, or that would leave the place it is meant for."""

    code = "invalid_key"


class InvalidManifestError(BlobSyncError):
    """A manifest that must not be followed: malformed, not canonical, or naming files outside its tree."""

    code = "invalid_manifest"


class InvalidLayoutError(BlobSyncError):
    """A layout that cannot be followed: malformed, or its packs do not hold what the release needs."""

    code = "invalid_layout"


class InvalidPackError(BlobSyncError):
    """A pack whose tables contradict themselves or ask for more than is allowed. Nothing of it was used."""

    code = "invalid_pack"


class BlobNotFoundError(BlobSyncError):
    """The store answered: there is no such object."""

    code = "blob_not_found"

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} does not exist; publish it, or check bucket and prefix")
        self.where = where


class StoreUnavailableError(BlobSyncError):
    """The store gave no usable answer: not reachable, too slow, overloaded, or it broke off."""

    code = "store_unavailable"
    retryable = True


class StoreAccessDeniedError(BlobSyncError):
    """The store refused our credentials, or what they may do."""

    code = "store_access_denied"


class BucketMissingError(BlobSyncError):
    """The store answered: there is no such bucket."""

    code = "bucket_missing"


class StoreRefusedError(BlobSyncError):
    """The store understood the request and refused it; the same request will be refused again."""

    code = "store_refused"


class UnmatchedPatternError(BlobSyncError):
    """A pattern of the files to publish matches nothing."""

    code = "unmatched_pattern"

    def __init__(self, pattern: str, root: object, hint: str = "") -> None:
        super().__init__(
            f"pattern {pattern!r} matches no file below {root}{hint}; correct the pattern or take it out"
        )
        self.pattern = pattern


class UnsafeSourceError(BlobSyncError):
    """A file that is not published: a link out of the tree, a device, a colliding name, a secret."""

    code = "unsafe_source"


class SourceChangedError(BlobSyncError):
    """A file changed while it was read for publishing. Nothing of it became visible."""

    code = "source_changed"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} changed while it was being published, so no release was made; "
            f"publish again when nothing writes to it"
        )
        self.path = path


class PublishLapsedError(BlobSyncError):
    """A publish could not keep its lease: what it counts on may be gone. Nothing became visible."""

    code = "publish_lapsed"
    retryable = True


class CollectLapsedError(BlobSyncError):
    """A collection could not keep its lease. The next run goes on."""

    code = "collect_lapsed"


class StoppedError(BlobSyncError):
    """A publish or a collection was told to stop."""

    code = "stopped"


class ReplicasMissingError(BlobSyncError):
    """Fewer hosts than wanted have verified a release in time."""

    code = "replicas_missing"
    retryable = True


class CorruptBlobError(BlobSyncError):
    """Bytes that are not what their digest says. They were not installed."""

    code = "corrupt_blob"
    retryable = True  # damage in transit heals; damage at the source is told apart by its persistence


class CorruptPackError(CorruptBlobError):
    """A pack with other bytes than it says. It was not installed."""

    code = "corrupt_pack"


class BlobMissingError(BlobSyncError):
    """The local store lacks, or cannot vouch for, a file that is needed now."""

    code = "blob_missing"
    retryable = True


class LocalStoreError(BlobSyncError):
    """The disk did not do what was asked: full, read-only, permission lost, or a file was removed meanwhile.

    What was there is unharmed.
    """

    code = "local_store"
    retryable = True


class GcRefusedError(BlobSyncError):
    """Nothing was removed, because what is wanted is not known well enough."""

    code = "gc_refused"


class ReleaseAbsentError(BlobSyncError):
    """The store answered: this release, or a file of it, does not exist there; nor is it on this disk."""

    code = "release_absent"


class ReleaseCorruptError(BlobSyncError):
    """The store serves wrong bytes for this release, again and again."""

    code = "release_corrupt"


class SyncerClosedError(BlobSyncError):
    """A syncer that was closed was asked for something."""

    code = "syncer_closed"
