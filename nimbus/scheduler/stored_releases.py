"""Files of releases, for the API: from this disk, or, for manifests, also from storage."""

from __future__ import annotations

from collections.abc import Sequence

from blobsync import (
    BlobMissingError,
    BlobNotFoundError,
    BlobSyncError,
    LocalStore,
    Manifest,
    ObjectStore,
    ReleaseAbsentError,
    ReleaseRef,
    ReplicaBoard,
    fetch_manifest,
)
from blobsync.bucket.releases import published
from nimbus.adapters.s3_records import or_unavailable
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.release_files import Holders, ReleaseFile, ReleasePublication


class StoredReleases:
    """See `nimbus.api.services.Releases`. Any thread."""

    def __init__(self, store: ObjectStore, local: LocalStore) -> None:
        self._store, self._local = store, local
        self._board = ReplicaBoard(store)

    def published(self, pipeline: PipelineName) -> Sequence[ReleasePublication]:
        """See the protocol."""
        with or_unavailable(f"releases of {pipeline} cannot be listed"):
            return [
                ReleasePublication(ReleaseDigest(one.digest), one.at)
                for one in published(self._store, pipeline)
            ]

    def is_here(self, release: ReleaseOf) -> bool:
        """See the protocol. Also False if the disk cannot be read."""
        try:
            return self._local.is_here(_ref(release))
        except BlobSyncError:
            return False

    def files(self, release: ReleaseOf) -> Sequence[ReleaseFile] | None:
        """See the protocol."""
        with or_unavailable(f"release {release.digest[:12]} of {release.pipeline} cannot be read"):
            try:
                found = self._kept(release) or fetch_manifest(self._store, release.pipeline, release.digest)
            except BlobNotFoundError:
                return None
        return [
            ReleaseFile(item.path, item.size_bytes, item.sha256, item.role.value, item.executable)
            for item in found.artifacts
        ]

    def content(self, release: ReleaseOf, path: str) -> bytes | None:
        """See the protocol."""
        with or_unavailable(f"{path[:200]} of {_ref(release)} cannot be read"):
            try:
                return b"".join(self._local.read(_ref(release), path))
            except (BlobMissingError, ReleaseAbsentError):
                return None

    def holders(self, digest: ReleaseDigest) -> Holders:
        """See the protocol."""
        with or_unavailable("the holders of a release are not known"):
            found = self._board.look(digest)
        return Holders(holding=found.holders, lacking=found.lacking, silent=found.silent)

    def _kept(self, release: ReleaseOf) -> Manifest | None:
        kept = self._local.kept(_ref(release))
        return None if kept is None else kept.manifest


def _ref(release: ReleaseOf) -> ReleaseRef:
    return ReleaseRef(release.pipeline, release.digest)
