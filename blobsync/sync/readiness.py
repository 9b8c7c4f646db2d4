"""Is everything here? The answer, as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    BucketMissingError,
    CorruptBlobError,
    InvalidManifestError,
    StoreAccessDeniedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from blobsync.release.manifest import Artifact, ReleaseRef, Role


class ReleaseState(StrEnum):
    """How one release stands on this host."""

    READY = "ready"
    """Every file is here and verified."""
    SYNCING = "syncing"
    """Being brought here; or the local disk is in the way, as the reason says."""
    ABSENT = "absent"
    """The object store answered: the manifest or a file does not exist there."""
    UNAVAILABLE = "unavailable"
    """The object store cannot be reached, or does not let us in."""
    CORRUPT = "corrupt"
    """The object store gave wrong bytes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last try of something failed."""

    state: ReleaseState
    reason: str


_STATES: tuple[tuple[tuple[type[BlobSyncError], ...], ReleaseState], ...] = (
    ((BlobNotFoundError,), ReleaseState.ABSENT),
    ((CorruptBlobError, InvalidManifestError), ReleaseState.CORRUPT),
    (
        (StoreUnavailableError, StoreAccessDeniedError, BucketMissingError, StoreRefusedError),
        ReleaseState.UNAVAILABLE,
    ),
)


def failure_of(error: BaseException) -> Failure:
    """What an error means for the release it was met for."""
    for kinds, state in _STATES:
        if isinstance(error, kinds):
            return Failure(state, str(error))
    return Failure(ReleaseState.SYNCING, str(error))


@dataclass(frozen=True, slots=True)
class MissingArtifact:
    """A file that is not here, or not verified."""

    path: str
    role: Role
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ReleaseReadiness:
    """How one release stands here, and why."""

    ref: ReleaseRef
    state: ReleaseState
    missing: tuple[MissingArtifact, ...] = ()
    missing_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How all wanted releases stand here. A value: it does not change."""

    releases: Mapping[ReleaseRef, ReleaseReadiness] = field(default_factory=dict)
    total_bytes: int = 0
    """Of all distinct blobs of the wanted releases, as far as their manifests are known."""
    quarantined_count: int = 0
    """Files found damaged here since the start."""

    def is_ready(self, ref: ReleaseRef) -> bool:
        """Whether every file of this release is here and verified. A release nobody wanted is not."""
        found = self.releases.get(ref)
        return found is not None and found.state is ReleaseState.READY

    @property
    def all_ready(self) -> bool:
        """Whether every wanted release is ready. True when nothing is wanted."""
        return all(found.state is ReleaseState.READY for found in self.releases.values())

    @property
    def missing_bytes(self) -> int:
        """Bytes of distinct blobs that are missing, as far as it is known."""
        return distinct_bytes(item for found in self.releases.values() for item in found.missing)

    @property
    def missing_count(self) -> int:
        """Distinct blobs that are missing, as far as it is known."""
        return len({item.sha256 for found in self.releases.values() for item in found.missing})


def distinct_bytes(items: Iterable[MissingArtifact]) -> int:
    """Bytes to fetch for these files: equal content is fetched once."""
    return sum({item.sha256: item.size_bytes for item in items}.values())


def missing_artifact(item: Artifact) -> MissingArtifact:
    """An artifact, as something that is missing."""
    return MissingArtifact(item.path, item.role, item.size_bytes, item.sha256)
