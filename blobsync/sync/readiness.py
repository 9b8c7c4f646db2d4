"""Readiness of the wanted releases on this host. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    BucketAccessDeniedError,
    BucketMissingError,
    BucketRefusedError,
    BucketUnavailableError,
    LocalStoreError,
)
from blobsync.local.disk_state import DiskState
from blobsync.local.releases import Release
from blobsync.release.manifest import PACKED_BYTES, Artifact, ReleaseRef, Role
from blobsync.retry import WRONG_BYTES


class ReleaseState(StrEnum):
    """State of one release, or of one of its files, on this host."""

    READY = "ready"
    """Every file is here and verified."""
    SYNCING = "syncing"
    """It is being fetched, or the local disk prevents that; then the reason says so."""
    ABSENT = "absent"
    """The object store answered: the manifest or a file does not exist there."""
    UNAVAILABLE = "unavailable"
    """The object store cannot be reached, or denies access."""
    CORRUPT = "corrupt"
    """The object store returned wrong bytes, twice. Damage on this disk is SYNCING instead."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last try of something failed.

    `state` is that of a release with it; `of_disk`: the local disk failed, not the object store.
    """

    state: ReleaseState
    reason: str
    of_disk: bool = False


_STATES: tuple[tuple[tuple[type[BlobSyncError], ...], ReleaseState], ...] = (
    ((BlobNotFoundError,), ReleaseState.ABSENT),
    (WRONG_BYTES, ReleaseState.CORRUPT),
    (
        (BucketUnavailableError, BucketAccessDeniedError, BucketMissingError, BucketRefusedError),
        ReleaseState.UNAVAILABLE,
    ),
)


def failure_of(error: BaseException) -> Failure:
    """The failure of a release that an error means."""
    for kinds, state in _STATES:
        if isinstance(error, kinds):
            return Failure(state, str(error))
    return Failure(ReleaseState.SYNCING, str(error), of_disk=isinstance(error, LocalStoreError))


class MissingArtifact(NamedTuple):
    """A file that is not here, or not verified.

    Attributes:
        state: Why it is not here. It is not known which missing pack contains a small file, so such a file is
            absent only if all missing packs are absent.
    """

    path: str
    role: Role
    size_bytes: int
    sha256: str
    state: ReleaseState = ReleaseState.SYNCING


@dataclass(frozen=True, slots=True)
class ReleaseReadiness:
    """State of one release on this host, and the reason.

    Attributes:
        state: The worst state of its parts.
        missing: Files that are not here. Files of packs that have arrived are removed at the next look.
        missing_bytes: Size of their distinct contents.
        reason: For people; empty if it is ready.
        artifact_count: Number of files of the release; 0 while its manifest is not known.
    """

    ref: ReleaseRef
    state: ReleaseState
    missing: tuple[MissingArtifact, ...] = ()
    missing_bytes: int = 0
    reason: str = ""
    artifact_count: int = 0


@dataclass(frozen=True)
class Readiness:
    """State of all wanted releases on this host. Immutable."""

    releases: Mapping[ReleaseRef, ReleaseReadiness] = field(default_factory=dict)
    total_bytes: int = 0
    """Size of the distinct files of each wanted release whose manifest is known. A file that several releases
    have counts once if it is above 4 MiB, otherwise once for each release."""
    quarantined_count: int = 0
    """Objects, manifests and layouts that the scrub of this process found damaged since its start. Not
    counted: damage that a look finds, and damage in trees."""
    disk: DiskState = field(default_factory=DiskState)
    """State of the disk. While it fails, ready releases stay ready, but nothing more can be fetched."""

    def is_ready(self, ref: ReleaseRef) -> bool:
        """True if this release is wanted, and every file of it is here and verified."""
        readiness = self.releases.get(ref)
        return readiness is not None and readiness.state is ReleaseState.READY

    @cached_property
    def all_ready(self) -> bool:
        """True if every wanted release is ready, also if none is wanted."""
        return all(readiness.state is ReleaseState.READY for readiness in self.releases.values())

    @cached_property
    def missing_bytes(self) -> int:
        """Bytes of distinct missing blobs, as far as manifests are known."""
        return sum(self._missing_contents.values())

    @cached_property
    def missing_count(self) -> int:
        """Number of distinct missing blobs, as far as manifests are known."""
        return len(self._missing_contents)

    @cached_property
    def _missing_contents(self) -> dict[str, int]:
        return {
            item.sha256: item.size_bytes for readiness in self.releases.values() for item in readiness.missing
        }


_WORST_FIRST = (ReleaseState.ABSENT, ReleaseState.CORRUPT, ReleaseState.UNAVAILABLE, ReleaseState.SYNCING)


def readiness_of(
    ref: ReleaseRef,
    known: Release | None,
    missing_files: tuple[Artifact, ...] | None,
    look: Failure | None,
    fetches: Mapping[str, Failure | None],
    packs: Set[str],
) -> ReleaseReadiness:
    """State of a release.

    `known` is None until its manifest was read, `missing_files` None if it is complete. `look` is the failure
    of the last look, `fetches` has the missing objects with the failure of the last try of each, and `packs`
    those of them that are packs.
    """
    count = 0 if known is None else known.record.file_count
    if missing_files is None:
        return ReleaseReadiness(ref, ReleaseState.READY, artifact_count=count)
    missing = tuple(_missing_artifacts(missing_files, fetches, packs))
    missing_bytes = sum({item.sha256: item.size_bytes for item in missing}.values())
    failures = [failure for failure in (look, *fetches.values()) if failure is not None]
    worst = min(failures, key=lambda item: _WORST_FIRST.index(item.state), default=None)
    if worst is None:
        reason = f"{len(missing)} of {count} files to fetch" if count else "its manifest is being read"
        worst = Failure(ReleaseState.SYNCING, reason)
    return ReleaseReadiness(ref, worst.state, missing, missing_bytes, worst.reason, count)


def total_bytes(releases: Iterable[Release]) -> int:
    """Size of the files of these releases, see `Readiness.total_bytes`."""
    small, blobs = 0, dict[str, int]()
    for release in releases:
        own = {blob.sha256: blob.size_bytes for blob in release.record.blobs}
        small += release.record.size_bytes - sum(own.values())
        blobs |= own
    return small + sum(blobs.values())


def _missing_artifacts(
    missing_files: tuple[Artifact, ...], fetches: Mapping[str, Failure | None], packs: Set[str]
) -> Iterator[MissingArtifact]:
    in_packs = _mildest(fetches[name] for name in packs) if packs else None
    for item in missing_files:
        state = in_packs
        if item.size_bytes > PACKED_BYTES:
            name = item.blob.name
            state = _state(fetches[name]) if name in fetches else None
        if state is not None:
            yield MissingArtifact(item.path, item.role, item.size_bytes, item.sha256, state)


def _mildest(failures: Iterable[Failure | None]) -> ReleaseState:
    """State of a small file: the mildest of the missing packs, because any of them may contain it."""
    return max(map(_state, failures), key=_WORST_FIRST.index, default=ReleaseState.SYNCING)


def _state(failure: Failure | None) -> ReleaseState:
    return ReleaseState.SYNCING if failure is None else failure.state
