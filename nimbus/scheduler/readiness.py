"""Which required releases are missing on this disk, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import PipelineName

_HOPELESS = (ReleaseState.ABSENT, ReleaseState.CORRUPT)
"""Storage answered, and what it has is not the release: waiting helps nobody."""


def lacking(required: Collection[ReleaseOf], readiness: Readiness) -> Mapping[PipelineName, str]:
    """Pipelines whose active release is not complete and verified here, with what is missing."""
    return {name: _reason(found) for name, found in _unready(required, readiness).items()}


def hopeless(required: Collection[ReleaseOf], readiness: Readiness) -> Mapping[PipelineName, str]:
    """Pipelines whose active release storage does not have, or has with wrong bytes: quarantined by a leader.

    One that is merely not fetched yet is none of them: its tasks wait on the worker that fetches it.
    """
    return {
        name: _reason(found)
        for name, found in _unready(required, readiness).items()
        if found is not None and found.state in _HOPELESS
    }


def _unready(
    required: Collection[ReleaseOf], readiness: Readiness
) -> Mapping[PipelineName, ReleaseReadiness | None]:
    return {
        release.pipeline: found
        for release in sorted(required)
        if (found := _of(readiness, release)) is None or found.state is not ReleaseState.READY
    }


def _of(readiness: Readiness, release: ReleaseOf) -> ReleaseReadiness | None:
    return readiness.releases.get(ReleaseRef(release.pipeline, release.digest))


def _reason(found: ReleaseReadiness | None) -> str:
    if found is None:
        return "its release was not looked at yet"
    names = ", ".join(missing.path for missing in found.missing[:3])
    more = f" and {len(found.missing) - 3} more" if len(found.missing) > 3 else ""
    files = f"; missing: {names}{more}" if names else ""
    return f"{found.state}: {found.reason or 'not complete on this disk'}{files}"
