"""Finds required releases that are missing on this disk, with the reasons. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import PipelineName

_HOPELESS = (ReleaseState.ABSENT, ReleaseState.CORRUPT)
"""States in which storage does not have the release, so that waiting does not help."""


def lacking(required: Collection[ReleaseOf], readiness: Readiness) -> Mapping[PipelineName, str]:
    """Pipelines whose active release is not complete and verified here, with what is missing."""
    return {name: _reason(found) for name, found in _unready(required, readiness).items()}


def hopeless(required: Collection[ReleaseOf], readiness: Readiness) -> Mapping[PipelineName, str]:
    """Pipelines whose active release is missing or corrupt in storage. A leader quarantines them.

    A release that is only not fetched yet is not included: its tasks wait on the worker that fetches it.
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
