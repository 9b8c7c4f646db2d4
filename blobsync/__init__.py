"""Content-addressed releases in S3-compatible storage, and a verified local store of them.

Guaranteed: a file in a local store had the bytes of its digest when it got its name; a release counts as
ready only while each of its files is there and is the file that was verified. **Not** guaranteed: that a file
does not change between two checks. A changed size, time or inode is found before each use; a byte that flips
on the disk is found by the next round of the scrub. See `blobsync.local.store`.

    store = S3ObjectStore(S3Config(endpoint_url="http://127.0.0.1:9000", bucket="releases", ...))
    release = publish(store, name="flights", files=collect(Path("flights"), include=["**/*.py"]))
    with LocalStore(Path("/var/lib/blobs")) as local:
        syncer = Syncer(store, local, retry=RetryPolicy(), on_change=print)
        syncer.start()
        syncer.want({ReleaseRef("flights", release.digest)})
        folder = syncer.ensure(ReleaseRef("flights", release.digest), timedelta(minutes=1))
        syncer.close(timedelta(seconds=5))

Each name, except the errors, is imported from its module at its first use: no program needs all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from blobsync.errors import (
    BlobMissingError,
    BlobNotFoundError,
    BlobSyncConfigError,
    BlobSyncError,
    BucketAccessDeniedError,
    BucketMissingError,
    BucketRefusedError,
    BucketUnavailableError,
    CorruptBlobError,
    GcRefusedError,
    InvalidKeyError,
    InvalidManifestError,
    LocalStoreError,
    NoThreadError,
    PublishLapsedError,
    ReleaseAbsentError,
    ReleaseCorruptError,
    ReplicasMissingError,
    SourceChangedError,
    SyncerClosedError,
    UnmatchedPatternError,
    UnsafeSourceError,
)

if TYPE_CHECKING:
    from blobsync.bucket.ports import ObjectInfo, ObjectStore, valid_objects
    from blobsync.bucket.releases import fetch_manifest, list_releases
    from blobsync.collection.collector import CollectionReport, collect_garbage
    from blobsync.collection.decision import CollectionPolicy
    from blobsync.local.disk_state import DiskCondition, DiskState
    from blobsync.local.gc import GcReport, gc
    from blobsync.local.store import LocalStore
    from blobsync.malloc import give_back_large_blocks
    from blobsync.progress import Progress, SyncProgress, WorkPhase
    from blobsync.publishing.publisher import PublishedRelease, publish
    from blobsync.publishing.sources import SourceFile, collect, matching
    from blobsync.release.manifest import Artifact, Manifest, ReleaseRef, Role
    from blobsync.replicas import (
        ReplicaBoard,
        ReplicaPolicy,
        ReplicaRecord,
        ReplicaReport,
        Replicas,
        wait_for_replicas,
    )
    from blobsync.retry import RetryPolicy
    from blobsync.s3.config import S3Config, Secret
    from blobsync.s3.store import S3ObjectStore
    from blobsync.sync.readiness import MissingArtifact, Readiness, ReleaseReadiness, ReleaseState
    from blobsync.sync.scrubber import ScrubProgress
    from blobsync.sync.syncer import Syncer

__all__ = [
    "Artifact",
    "BlobMissingError",
    "BlobNotFoundError",
    "BlobSyncConfigError",
    "BlobSyncError",
    "BucketAccessDeniedError",
    "BucketMissingError",
    "BucketRefusedError",
    "BucketUnavailableError",
    "CollectionPolicy",
    "CollectionReport",
    "CorruptBlobError",
    "DiskCondition",
    "DiskState",
    "GcRefusedError",
    "GcReport",
    "InvalidKeyError",
    "InvalidManifestError",
    "LocalStore",
    "LocalStoreError",
    "Manifest",
    "MissingArtifact",
    "NoThreadError",
    "ObjectInfo",
    "ObjectStore",
    "Progress",
    "PublishLapsedError",
    "PublishedRelease",
    "Readiness",
    "ReleaseAbsentError",
    "ReleaseCorruptError",
    "ReleaseReadiness",
    "ReleaseRef",
    "ReleaseState",
    "ReplicaBoard",
    "ReplicaPolicy",
    "ReplicaRecord",
    "ReplicaReport",
    "Replicas",
    "ReplicasMissingError",
    "RetryPolicy",
    "Role",
    "S3Config",
    "S3ObjectStore",
    "ScrubProgress",
    "Secret",
    "SourceChangedError",
    "SourceFile",
    "SyncProgress",
    "Syncer",
    "SyncerClosedError",
    "UnmatchedPatternError",
    "UnsafeSourceError",
    "WorkPhase",
    "collect",
    "collect_garbage",
    "fetch_manifest",
    "gc",
    "give_back_large_blocks",
    "list_releases",
    "matching",
    "publish",
    "valid_objects",
    "wait_for_replicas",
]


_NAMES = {
    "bucket.ports": "ObjectInfo ObjectStore valid_objects",
    "bucket.releases": "fetch_manifest list_releases",
    "collection.collector": "CollectionReport collect_garbage",
    "collection.decision": "CollectionPolicy",
    "local.disk_state": "DiskCondition DiskState",
    "local.gc": "GcReport gc",
    "local.store": "LocalStore",
    "malloc": "give_back_large_blocks",
    "progress": "WorkPhase Progress SyncProgress",
    "publishing.publisher": "PublishedRelease publish",
    "publishing.sources": "SourceFile collect matching",
    "release.manifest": "Artifact Manifest ReleaseRef Role",
    "replicas": "ReplicaBoard ReplicaPolicy ReplicaRecord ReplicaReport Replicas wait_for_replicas",
    "retry": "RetryPolicy",
    "s3.config": "S3Config Secret",
    "s3.store": "S3ObjectStore",
    "sync.readiness": "MissingArtifact Readiness ReleaseReadiness ReleaseState",
    "sync.scrubber": "ScrubProgress",
    "sync.syncer": "Syncer",
}
"""The module of each name; type checkers read the imports above."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # so that this is called once for each name
    return value


def __dir__() -> list[str]:
    """All names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
