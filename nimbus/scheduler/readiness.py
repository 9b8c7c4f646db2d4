"""Assesses whether this scheduler may lead, from the required releases and what is on this disk.

The guard's verdict and the registration follow from the same assessment, so a condition for leadership is
added here, in `assess`. The election decides whether this scheduler leads despite the guard's verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState
from leader import Verdict
from nimbus.domain.cluster.schedulers import MissingFile
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.catalog import ReleaseOf, required_releases
from nimbus.ports import ClusterReader

_HOPELESS = (ReleaseState.ABSENT, ReleaseState.CORRUPT)
"""States in which storage does not have the release, so that waiting does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What keeps this scheduler from leading."""

    reasons: tuple[str, ...]
    """Why it is not ready; empty: it is ready."""
    lacks: Mapping[PipelineName, str] = field(default_factory=dict)
    """Pipelines whose active release is not complete and verified here, with what is missing."""
    hopeless: Mapping[PipelineName, str] = field(default_factory=dict)
    """Those of them whose release is missing or corrupt in storage. A leader quarantines them.

    A release that is only not fetched yet is not included: its tasks wait on the worker that fetches it.
    """
    missing: tuple[MissingFile, ...] = ()
    """The missing files of all of them, as far as they are known."""

    @property
    def is_hopeless(self) -> bool:
        """True if it is not ready, and waiting would help in nothing."""
        return bool(self.reasons) and len(self.reasons) == len(self.hopeless)


def assess(required: Collection[ReleaseOf] | None, readiness: Readiness) -> Assessment:
    """Compare the required releases (None: the catalog was not read yet) with those on this disk."""
    if required is None:
        return Assessment(reasons=("the catalog was not read yet",))
    releases = {release: _of(readiness, release) for release in sorted(required)}
    unready = {
        release.pipeline: state
        for release, state in releases.items()
        if state.state is not ReleaseState.READY
    }
    lacks = {name: _reason(release) for name, release in unready.items()}
    return Assessment(
        reasons=tuple(f"{name}: {why}" for name, why in lacks.items()),
        lacks=lacks,
        hopeless={name: lacks[name] for name, release in unready.items() if release.state in _HOPELESS},
        missing=tuple(
            MissingFile(
                pipeline=name,
                path=file.path,
                role=str(file.role),
                size_bytes=file.size_bytes,
                sha256=file.sha256,
            )
            for name, release in unready.items()
            for file in release.missing
        ),
    )


def _of(readiness: Readiness, release: ReleaseOf) -> ReleaseReadiness:
    ref = ReleaseRef(release.pipeline, release.digest)
    state = readiness.releases.get(ref)
    if state is None:
        return ReleaseReadiness(ref, ReleaseState.SYNCING, reason="its release was not checked yet")
    return state


def _reason(release: ReleaseReadiness) -> str:
    names = ", ".join(missing.path for missing in release.missing[:3])
    more = f" and {len(release.missing) - 3} more" if len(release.missing) > 3 else ""
    files = f"; missing: {names}{more}" if names else ""
    return f"{release.state}: {release.reason or 'not complete on this disk'}{files}"


class ReadinessGuard:
    """Decides whether this scheduler may lead. `__call__` runs on the thread `leader-callbacks`.

    The guard reads the catalog itself. Our epoch was raised on the same session just before. So the guard
    reads the last writes of the former leader, and later writes of it are refused.

    `strict`: every missing release is a refusal; else, releases that storage does not have, either, are a
    degraded yes, because waiting would not help. `on_lacking` is called each time with the pipelines whose
    releases are missing: the election may let this scheduler lead despite them. They are then quarantined
    until its first report as leader, which replaces them by the `hopeless` ones.
    """

    def __init__(
        self,
        *,
        reader: ClusterReader,
        readiness: Callable[[], Readiness],
        strict: bool,
        on_lacking: Callable[[Mapping[PipelineName, str]], None],
    ) -> None:
        self._reader, self._readiness, self._strict = reader, readiness, strict
        self._on_lacking = on_lacking

    def __call__(self) -> Verdict:
        """Read the catalog and decide. Raises if ZooKeeper does not answer, which is a refusal."""
        assessment = assess(required_releases(self._reader.pipelines()), self._readiness())
        self._on_lacking(assessment.lacks)
        degraded = not self._strict and assessment.is_hopeless
        return Verdict(degraded or not assessment.reasons, assessment.reasons, degraded)
