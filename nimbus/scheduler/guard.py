"""The guard: it is called after we hold the lock and the epoch, and before leadership is confirmed.

It checks the releases of this scheduler. The election decides whether another scheduler leads instead, or
this one despite the verdict. The guard reads the catalog itself. Our epoch was raised on the same session
just before. So the guard reads the last writes of the former leader, and later writes of it are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blobsync import Readiness
from leader import Verdict
from nimbus.domain.catalog import required_releases
from nimbus.domain.ids import PipelineName
from nimbus.ports import ClusterReader
from nimbus.scheduler.readiness import assess


class ReadinessGuard:
    """Decides whether this scheduler may lead. `__call__` runs on the thread `leader-callbacks`.

    Args:
        strict: True: every missing release is a refusal. False: releases that storage does not have, either,
            are a degraded yes, because waiting would not help.
        on_lacking: Called each time with the pipelines whose releases are missing: the election may let this
            scheduler lead despite them. They are then quarantined until its first report as leader, which
            replaces them by the `hopeless` ones.
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
        found = assess(required_releases(self._reader.pipelines()), self._readiness())
        self._on_lacking(found.lacks)
        degraded = not self._strict and found.is_hopeless
        return Verdict(degraded or not found.reasons, found.reasons, degraded)
