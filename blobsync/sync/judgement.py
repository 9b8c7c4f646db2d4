"""What a release's looks and fetches so far mean for it, and for each of its files. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence, Set

from blobsync.local.releases import KeptRelease
from blobsync.release.artifacts import Row, rows_of
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.manifest import Artifact, ReleaseRef
from blobsync.sync.readiness import (
    STATES,
    Failure,
    MissingFiles,
    ReleaseReadiness,
    ReleaseState,
)

_PLACES = {state: place for place, state in enumerate(STATES)}
_WORST_FIRST = (ReleaseState.ABSENT, ReleaseState.CORRUPT, ReleaseState.UNAVAILABLE, ReleaseState.SYNCING)


def judged(
    ref: ReleaseRef,
    known: KeptRelease | None,
    lacking: Sequence[Artifact] | None,
    look: Failure | None,
    fetches: Mapping[str, Failure | None],
    packs: Set[str],
    bundled: Mapping[str, str],
) -> ReleaseReadiness:
    """How a release stands.

    Args:
        ref: The release.
        known: What it is; None: nobody knows yet.
        lacking: Files that were missing at the last look; None: it is complete.
        look: Why the last look failed.
        fetches: Objects that are missing now, by name, and why the last try of each failed.
        packs: Which of them are packs.
        bundled: Which of them are to bring the small files that lie loose in the bucket, by SHA-256.
    """
    count = 0 if known is None else known.record.file_count
    if lacking is None:
        return ReleaseReadiness(ref, ReleaseState.READY, artifact_count=count)
    missing = _missing(lacking, fetches, packs, bundled)
    failures = [failure for failure in (look, *fetches.values()) if failure is not None]
    worst = min(failures, key=lambda item: _WORST_FIRST.index(item.state), default=None)
    if worst is None:
        reason = f"{len(missing)} of {count} files to fetch" if count else "its manifest is being read"
        worst = Failure(ReleaseState.SYNCING, reason)
    return ReleaseReadiness(ref, worst.state, missing, missing.distinct_bytes, worst.reason, count)


def total_bytes(releases: Iterable[KeptRelease]) -> int:
    """Of the files of these releases, as of `Readiness.total_bytes`."""
    small, blobs = 0, dict[str, int]()
    for release in releases:
        own = {blob.sha256: blob.size_bytes for blob in release.record.blobs}
        small += release.record.size_bytes - sum(own.values())
        blobs |= own
    return small + sum(blobs.values())


def _missing(
    lacking: Sequence[Artifact],
    fetches: Mapping[str, Failure | None],
    packs: Set[str],
    bundled: Mapping[str, str],
) -> MissingFiles:
    in_packs = _mildest(fetches[name] for name in packs)

    def state_of(index: int, row: Row) -> ReleaseState | None:
        if row.sha256 in bundled:
            return _state(fetches[bundled[row.sha256]])
        if row.size_bytes <= PACKED_BYTES:
            return in_packs if packs else None
        name = lacking[index].blob.name
        return _state(fetches[name]) if name in fetches else None

    indices, states, count, size_bytes = array("I"), bytearray(), 0, 0
    for index, row in enumerate(rows_of(lacking)):
        state = state_of(index, row)
        if state is not None:
            indices.append(index)
            states.append(_PLACES[state])
            if row.is_first:
                count, size_bytes = count + 1, size_bytes + row.size_bytes
    return MissingFiles(lacking, indices, bytes(states), count, size_bytes)


def _mildest(failures: Iterable[Failure | None]) -> ReleaseState:
    """Nobody knows in which of several packs a file is: it may be in the one that still comes."""
    return max(map(_state, failures), key=_WORST_FIRST.index, default=ReleaseState.SYNCING)


def _state(failure: Failure | None) -> ReleaseState:
    return ReleaseState.SYNCING if failure is None else failure.state
