"""May this scheduler lead? Pure: the required releases, what is on the disk, and the operator's policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import PipelineName

_HOPELESS = (ReleaseState.ABSENT, ReleaseState.CORRUPT)
"""Storage answered, and what it has is not the release: waiting helps nobody."""


class GatePolicy(StrEnum):
    """What an artifact that nobody can get means for leadership."""

    STRICT = "strict"
    """Storm's rule: one missing artifact, no leadership."""
    PER_PIPELINE = "per_pipeline"
    """A pipeline whose artifacts storage does not have (any more) is quarantined; the others run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The guard's answer, with what it means for single pipelines."""

    ready: bool
    reasons: tuple[str, ...] = ()
    quarantined: Mapping[PipelineName, str] = field(default_factory=dict)
    forced: bool = False
    """Led for too long by nobody: ready in spite of what is missing."""


def judge(
    required: Collection[ReleaseOf],
    readiness: Readiness,
    *,
    policy: GatePolicy,
    ready_peers: Collection[str],
    leaderless_for: timedelta,
    forced_takeover_after: timedelta,
) -> Judgement:
    """Compare the required releases with what is here and verified.

    Args:
        required: Active releases from one snapshot of the catalog, dependencies included by their manifests.
        readiness: What the local store has verified.
        policy: What missing everywhere means.
        ready_peers: Live schedulers that say they have everything. While there is one, nobody who lacks
            something leads, whatever the policy: it is on that peer's disk, even if storage lost it.
            Only `forced_takeover_after` goes beyond that.
        leaderless_for: How long this scheduler has seen no leader.
        forced_takeover_after: From then on a missing release quarantines its pipeline instead of barring
            leadership, so that one lost file cannot leave the cluster without a leader.
    """
    unready = _unready(required, readiness)
    if not unready:
        return Judgement(ready=True)
    reasons = {name: _reason(found) for name, found in unready.items()}
    forced = leaderless_for >= forced_takeover_after
    barring = {
        name
        for name, found in unready.items()
        if not forced
        and (policy is GatePolicy.STRICT or found is None or found.state not in _HOPELESS or ready_peers)
    }
    if barring:
        return Judgement(ready=False, reasons=tuple(f"{name}: {reasons[name]}" for name in sorted(barring)))
    return Judgement(ready=True, quarantined=reasons, forced=forced)


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
