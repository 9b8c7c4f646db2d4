"""Is everything here? The answer, as data and as a small document. Pure.

The document is for places where documents must be small, such as ZooKeeper.
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
"""Of the document."""
MAX_BYTES = 32 << 10
MAX_NAMES = 20
_MAX_REASON_CHARS = 300
_MIN_BYTES = 2 << 10


class ReleaseState(StrEnum):
    """How one release, or one file of it, stands on this host."""

    READY = "ready"
    """Every file is here and verified."""
    SYNCING = "syncing"
    """Being fetched; or the local disk is in the way, as the reason says."""
    ABSENT = "absent"
    """The object store answered: the manifest or a file does not exist there."""
    UNAVAILABLE = "unavailable"
    """The object store cannot be reached, or does not let us in."""
    CORRUPT = "corrupt"
    """The bucket has wrong bytes: the object store gave them, twice. Damage on this disk is SYNCING."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last try of something failed.

    Attributes:
        state: What that means for a release.
        reason: For people.
        of_disk: The local disk failed, not the object store.
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
    """What an error means for the release it was met for."""
    for kinds, state in _STATES:
        if isinstance(error, kinds):
            return Failure(state, str(error))
    return Failure(ReleaseState.SYNCING, str(error), of_disk=isinstance(error, LocalStoreError))


class MissingArtifact(NamedTuple):
    """A file that is not here, or not verified.

    Attributes:
        path: In its release.
        role: What it is for.
        size_bytes: Its size.
        sha256: Its digest.
        state: Why it is not here. Which of the missing packs has a small file is not known, so such a file is
            absent only when all of them are.
    """

    path: str
    role: Role
    size_bytes: int
    sha256: str
    state: ReleaseState = ReleaseState.SYNCING


@dataclass(frozen=True, slots=True)
class ReleaseReadiness:
    """How one release stands here, and why.

    Attributes:
        ref: The release.
        state: The worst of what is known.
        missing: Files that are not here. Files of packs that came are taken out at the next look.
        missing_bytes: Of their distinct contents.
        reason: For people; empty when it is ready.
        artifact_count: Files of the release; 0 while its manifest is not known.
    """

    ref: ReleaseRef
    state: ReleaseState
    missing: tuple[MissingArtifact, ...] = ()
    missing_bytes: int = 0
    reason: str = ""
    artifact_count: int = 0


@dataclass(frozen=True)
class Readiness:
    """How all wanted releases stand here. A value: it does not change."""

    releases: Mapping[ReleaseRef, ReleaseReadiness] = field(default_factory=dict)
    total_bytes: int = 0
    """Of the distinct files of each wanted release that is known. What several have counts once if it is
    above 4 MiB, else for each."""
    quarantined_count: int = 0
    """Objects and manifests that the scrub of this process found damaged since the start. What a look finds,
    and damage in trees, is not counted."""
    disk: DiskState = field(default_factory=DiskState)
    """How the disk does. While it is not well, what is here stays ready, and nothing more comes."""

    def is_ready(self, ref: ReleaseRef) -> bool:
        """True if every file of this release is here and verified. False for a release that is not wanted."""
        found = self.releases.get(ref)
        return found is not None and found.state is ReleaseState.READY

    @cached_property
    def all_ready(self) -> bool:
        """Whether every wanted release is ready. True when nothing is wanted."""
        return all(found.state is ReleaseState.READY for found in self.releases.values())

    @cached_property
    def missing_bytes(self) -> int:
        """Bytes of distinct blobs that are missing, as far as it is known."""
        return sum(self._missing_contents.values())

    @cached_property
    def missing_count(self) -> int:
        """Distinct blobs that are missing, as far as it is known."""
        return len(self._missing_contents)

    @cached_property
    def _missing_contents(self) -> dict[str, int]:
        """Sizes of the distinct contents that are missing, by SHA-256."""
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
    """How a release stands.

    Args:
        ref: The release.
        known: What it is; None: its manifest was not read yet.
        missing_files: Files that were missing at the last look; None: it is complete.
        look: Why the last look failed.
        fetches: Objects that are missing now, by name, and why the last try of each failed.
        packs: Which of them are packs.
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
    """Of the files of these releases, as of `Readiness.total_bytes`."""
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
    """The state of a small file: the pack that has it is not known, and may be one that still comes."""
    return max(map(_state, failures), key=_WORST_FIRST.index, default=ReleaseState.SYNCING)


def _state(failure: Failure | None) -> ReleaseState:
    return ReleaseState.SYNCING if failure is None else failure.state


def readiness_document(
    readiness: Readiness, *, max_names: int = MAX_NAMES, max_bytes: int = MAX_BYTES
) -> bytes:
    """Canonical JSON that says how things stand, in a bounded size: the same readiness gives the same bytes.

    What is not ready comes first. When there is not enough room, names of missing files go first, then whole
    releases from the end; `left_out` says how many of those.

    Args:
        readiness: What to tell.
        max_names: Missing files that are named, over all releases; the counts tell of the rest.
        max_bytes: Of the document; at least 2 KiB.

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
    # A lone surrogate, as of a file name in some error, is no JSON.
    clean = text.encode(errors="replace").decode()
    return clean if len(clean) <= _MAX_REASON_CHARS else clean[: _MAX_REASON_CHARS - 1] + "…"
