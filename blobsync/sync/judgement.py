"""What a release's looks and fetches so far mean for it, and for each of its files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from blobsync.local.releases import KeptRelease
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.manifest import Artifact, ReleaseRef
from blobsync.sync.readiness import (
    Failure,
    MissingArtifact,
    ReleaseReadiness,
    ReleaseState,
)

_WORST_FIRST = (ReleaseState.ABSENT, ReleaseState.CORRUPT, ReleaseState.UNAVAILABLE, ReleaseState.SYNCING)


def judged(
    ref: ReleaseRef,
    known: KeptRelease | None,
    missing_files: tuple[Artifact, ...] | None,
    look: Failure | None,
    fetches: Mapping[str, Failure | None],
    packs: Set[str],
) -> ReleaseReadiness:
    """How a release stands.

    Args:
        ref: The release.
        known: What it is; None: nobody knows yet.
        missing_files: Files that were missing at the last look; None: it is complete.
        look: Why the last look failed.
        fetches: Objects that are missing now, by name, and why the last try of each failed.
        packs: Which of them are packs.
    """
    count = 0 if known is None else known.record.file_count
    if missing_files is None:
        return ReleaseReadiness(ref, ReleaseState.READY, artifact_count=count)
    missing = tuple(_missing(missing_files, fetches, packs))
    missing_bytes = sum({item.sha256: item.size_bytes for item in missing}.values())
    failures = [failure for failure in (look, *fetches.values()) if failure is not None]
    worst = min(failures, key=lambda item: _WORST_FIRST.index(item.state), default=None)
    if worst is None:
        reason = f"{len(missing)} of {count} files to fetch" if count else "its manifest is being read"
        worst = Failure(ReleaseState.SYNCING, reason)
    return ReleaseReadiness(ref, worst.state, missing, missing_bytes, worst.reason, count)


def total_bytes(releases: Iterable[KeptRelease]) -> int:
    """Of the files of these releases, as of `Readiness.total_bytes`."""
    small, blobs = 0, dict[str, int]()
    for release in releases:
        own = {blob.sha256: blob.size_bytes for blob in release.record.blobs}
        small += release.record.size_bytes - sum(own.values())
        blobs |= own
    return small + sum(blobs.values())


def _missing(
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
    """Nobody knows in which of several packs a file is: it may be in the one that still comes."""
    return max(map(_state, failures), key=_WORST_FIRST.index, default=ReleaseState.SYNCING)


def _state(failure: Failure | None) -> ReleaseState:
    return ReleaseState.SYNCING if failure is None else failure.state
