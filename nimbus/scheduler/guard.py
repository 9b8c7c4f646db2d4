"""The guard: asked once the lock and the epoch are ours, and before anybody is told that we lead.

It judges the releases of this scheduler. The election decides whether another scheduler leads instead, or
this one in spite of its verdict. The guard reads the catalog itself: our epoch was raised on the same session
just before, so it reads what the former leader left, and whatever that one still tries to write is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blobsync import Readiness
from leader import Verdict
from nimbus.domain.catalog import required_releases
from nimbus.domain.ids import PipelineName
from nimbus.ports import ClusterReader
from nimbus.scheduler.readiness import hopeless, lacking


class ReadinessGuard:
    """Says whether this scheduler may lead. `__call__` runs on the thread `leader-callbacks`.

    Args:
        strict: Every missing release is a no. Otherwise those that storage does not have are a degraded yes:
            waiting would not bring them.
        on_lacking: Told of the pipelines whose releases are missing, each time: the election may let this
            scheduler lead in spite of them, and then they are quarantined.
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
        """Judge from a fresh look at the catalog. Raises if ZooKeeper does not answer: then nobody leads."""
        required, readiness = required_releases(self._reader.pipelines()), self._readiness()
        lacks = lacking(required, readiness)
        self._on_lacking(lacks)
        if not lacks:
            return Verdict(True)
        degraded = not self._strict and lacks.keys() == hopeless(required, readiness).keys()
        reasons = tuple(f"{name}: {why}" for name, why in lacks.items())
        return Verdict(ready=degraded, reasons=reasons, degraded=degraded)
