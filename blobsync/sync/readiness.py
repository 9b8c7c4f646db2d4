"""Readiness of the wanted releases on this host, as data and as a small document. Pure.

The document is for places that need small documents, such as ZooKeeper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    BucketMissingError,
    LocalStoreError,
    StoreAccessDeniedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from blobsync.local.disk_state import DiskState
from blobsync.local.releases import Release
from blobsync.release.manifest import PACKED_BYTES, Artifact, ReleaseRef, Role
from blobsync.retry import WRONG_BYTES

SCHEMA = 1
"""Schema number of the document."""
MAX_BYTES = 32 << 10
MAX_NAMES = 20
_MAX_REASON_CHARS = 300
_MIN_BYTES = 2 << 10


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

    Attributes:
        state: State of a release with this failure.
        reason: For people.
        of_disk: True if the local disk failed, not the object store.
    """

    state: ReleaseState
    reason: str
    of_disk: bool = False


_STATES: tuple[tuple[tuple[type[BlobSyncError], ...], ReleaseState], ...] = (
    ((BlobNotFoundError,), ReleaseState.ABSENT),
    (WRONG_BYTES, ReleaseState.CORRUPT),
    (
        (StoreUnavailableError, StoreAccessDeniedError, BucketMissingError, StoreRefusedError),
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
        path: Path in its release.
        role: Role of the file.
        size_bytes: Its size.
        sha256: Its digest.
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
        ref: The release.
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
        found = self.releases.get(ref)
        return found is not None and found.state is ReleaseState.READY

    @cached_property
    def all_ready(self) -> bool:
        """True if every wanted release is ready, also if none is wanted."""
        return all(found.state is ReleaseState.READY for found in self.releases.values())

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
        """Sizes of the distinct missing contents, by SHA-256."""
        return {item.sha256: item.size_bytes for found in self.releases.values() for item in found.missing}


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

    Args:
        ref: The release.
        known: The release with its manifest; None: the manifest was not read yet.
        missing_files: Files that were missing at the last look; None: the release is complete.
        look: Why the last look failed; None: it did not.
        fetches: Names of the missing objects, with the failure of the last try of each.
        packs: Names of those that are packs.
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


def readiness_document(
    readiness: Readiness, *, max_names: int = MAX_NAMES, max_bytes: int = MAX_BYTES
) -> bytes:
    """Readiness as canonical JSON of bounded size. The same readiness gives the same bytes.

    Releases that are not ready come first. If the document is too large, names of missing files are removed
    first, then whole releases from the end; `left_out` is the number of removed releases.

    Args:
        readiness: The readiness.
        max_names: Limit of named missing files, over all releases; the counts include the others.
        max_bytes: Limit of the document's size; at least 2 KiB.

    Raises:
        ValueError: `max_bytes` is below that.
    """
    if max_bytes < _MIN_BYTES:
        raise ValueError(f"a readiness document needs {_MIN_BYTES} bytes, not {max_bytes}")
    names, count = max_names, len(readiness.releases)
    while len(made := _encoded(readiness, names, count)) > max_bytes:
        if names:
            names //= 2
        else:
            count //= 2
    return made


def _encoded(readiness: Readiness, max_names: int, max_releases: int) -> bytes:
    found = sorted(
        readiness.releases.values(),
        key=lambda item: (item.state is ReleaseState.READY, item.ref.name, item.ref.digest),
    )
    releases = []
    for item in found[:max_releases]:
        releases.append(_release(item, max_names))
        max_names -= min(max_names, len(item.missing))
    document = {
        "schema": SCHEMA,
        "ready": readiness.all_ready,
        "missing_count": readiness.missing_count,
        "missing_bytes": readiness.missing_bytes,
        "total_bytes": readiness.total_bytes,
        "quarantined_count": readiness.quarantined_count,
        "disk": {"condition": readiness.disk.condition.value, "reason": _short(readiness.disk.reason)},
        "releases": releases,
        "left_out": len(found) - len(releases),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _release(item: ReleaseReadiness, max_names: int) -> dict[str, Any]:
    return {
        "name": item.ref.name,
        "digest": item.ref.digest,
        "state": item.state.value,
        "artifact_count": item.artifact_count,
        "missing_count": len(item.missing),
        "missing_bytes": item.missing_bytes,
        "reason": _short(item.reason),
        "missing": [
            {
                "path": file.path,
                "role": file.role.value,
                "size_bytes": file.size_bytes,
                "state": file.state.value,
            }
            for file in item.missing[:max_names]
        ],
    }


def _short(text: str) -> str:
    # A lone surrogate, which a file name in an error may contain, is not valid in JSON.
    clean = text.encode(errors="replace").decode()
    return clean if len(clean) <= _MAX_REASON_CHARS else clean[: _MAX_REASON_CHARS - 1] + "…"
