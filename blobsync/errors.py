"""All errors of this package. One root, stable codes, and messages that say what to do."""

from __future__ import annotations


class BlobSyncError(Exception):
    """Root of all errors raised by `blobsync`.

    Attributes:
        code: Stable, for machines; the message is for people and may change.
        retryable: True if the same call may succeed later without any change by the caller.
    """

    code = "blobsync"
    retryable = False


class BlobSyncConfigError(BlobSyncError):
    """A setting that cannot work. The message holds the value and says what to change."""

    code = "blobsync_config"


class InvalidKeyError(BlobSyncError):
    """A key that some stores refuse, or write outside of its folder."""

    code = "invalid_key"


class InvalidManifestError(BlobSyncError):
    """A manifest that is malformed, not canonical, or names files outside of its tree."""

    code = "invalid_manifest"


class InvalidLayoutError(BlobSyncError):
    """A layout that is malformed, or whose packs lack files of the release."""

    code = "invalid_layout"


class InvalidPackError(BlobSyncError):
    """A pack whose tables contradict themselves or exceed a limit. Nothing of it was used."""

    code = "invalid_pack"


class BlobNotFoundError(BlobSyncError):
    """The store answered: there is no such object."""

    code = "blob_not_found"

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} does not exist; publish it, or check bucket and prefix")
        self.where = where


class BucketUnavailableError(BlobSyncError):
    """The store gave no usable answer: not reachable, too slow, overloaded, or it broke off."""

    code = "bucket_unavailable"
    retryable = True


class BucketAccessDeniedError(BlobSyncError):
    """The store refused the credentials, or they lack a permission."""

    code = "bucket_access_denied"


class BucketMissingError(BlobSyncError):
    """The store answered: there is no such bucket."""

    code = "bucket_missing"


class BucketRefusedError(BlobSyncError):
    """The store understood the request and refused it; the same request will be refused again."""

    code = "bucket_refused"


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
    """A publish could not keep its lease: objects that it needs may be deleted. Nothing became visible."""

    code = "publish_lapsed"
    retryable = True


class CollectLapsedError(BlobSyncError):
    """A collection could not keep its lease. The next run continues."""

    code = "collect_lapsed"


class StoppedError(BlobSyncError):
    """A publish or a collection was stopped."""

    code = "stopped"


class ReplicasMissingError(BlobSyncError):
    """Fewer hosts than wanted have verified a release in time."""

    code = "replicas_missing"
    retryable = True


class CorruptBlobError(BlobSyncError):
    """Bytes that do not match their digest. Fetched ones were not installed."""

    code = "corrupt_blob"
    retryable = True  # a retry repairs damage in transit; damage at the source is there again


class CorruptPackError(CorruptBlobError):
    """A pack whose bytes do not match its name or its tables. A fetched one was not installed."""

    code = "corrupt_pack"


class BlobMissingError(BlobSyncError):
    """The local store lacks a file that is needed now, or could not verify it."""

    code = "blob_missing"
    retryable = True


class LocalStoreError(BlobSyncError):
    """A disk operation failed: full, read-only, permission lost, or a file was removed meanwhile.

    Files that were there are unchanged.
    """

    code = "local_store"
    retryable = True


class NoThreadError(BlobSyncError):
    """The system allowed no thread. What needed it is tried again."""

    code = "no_thread"
    retryable = True


class GcRefusedError(BlobSyncError):
    """Nothing was removed: it is not certain which objects are needed, or too much would be removed."""

    code = "gc_refused"


class ReleaseAbsentError(BlobSyncError):
    """The store answered: this release, or a file of it, does not exist there; nor is it on this disk."""

    code = "release_absent"


class ReleaseCorruptError(BlobSyncError):
    """The store repeatedly serves wrong bytes for this release."""

    code = "release_corrupt"


class SyncerClosedError(BlobSyncError):
    """A method of a closed syncer was called, or the syncer was closed meanwhile."""

    code = "syncer_closed"

    def __init__(self, message: str = "this syncer was closed; make a new one") -> None:
        super().__init__(message)
