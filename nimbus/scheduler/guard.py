"""The guard: asked once the lock and the epoch are ours, and before anybody is told that we lead.

It reads the catalog itself. Our epoch was raised on the same session just before, so what we read is what the
former leader left: whatever it still tries to write is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

import structlog

from blobsync import Readiness
from leader import Verdict
from nimbus.domain.catalog import required_releases
from nimbus.domain.ids import PipelineName
from nimbus.engine.readiness import GatePolicy, Judgement, judge
from nimbus.ports import Clock, ClusterReader

_log = structlog.get_logger(__name__)


class ReadinessGuard:
    """Decides whether this scheduler may lead. `__call__` runs on any thread `leader-election-N`."""

    def __init__(
        self,
        *,
        me: str,
        reader: ClusterReader,
        readiness: Callable[[], Readiness],
        policy: GatePolicy,
        forced_takeover_after: timedelta,
        clock: Clock,
        on_quarantine: Callable[[Mapping[PipelineName, str]], None],
    ) -> None:
        self._me = me
        self._reader = reader
        self._readiness = readiness
        self._policy = policy
        self._forced_takeover_after = forced_takeover_after
        self._clock = clock
        self._on_quarantine = on_quarantine
        self._lock = threading.Lock()
        self._leader_seen_at_s = clock.elapsed_s()

    def leader_seen(self) -> None:
        """Note that somebody leads now."""
        with self._lock:
            self._leader_seen_at_s = self._clock.elapsed_s()

    def __call__(self) -> Verdict:
        """Judge from a fresh look at the catalog. Raises if ZooKeeper does not answer: then nobody leads."""
        judgement = self.judge()
        if judgement.ready:
            self._on_quarantine(judgement.quarantined)
            if judgement.quarantined:
                _log.warning(
                    "leading_incomplete", quarantined=dict(judgement.quarantined), forced=judgement.forced
                )
        return Verdict(ready=judgement.ready, reasons=judgement.reasons)

    def judge(self) -> Judgement:
        """The judgement as things stand now."""
        with self._lock:
            leaderless_s = self._clock.elapsed_s() - self._leader_seen_at_s
        return judge(
            required_releases(self._reader.pipelines()),
            self._readiness(),
            policy=self._policy,
            ready_peers=[peer.id for peer in self._reader.schedulers() if peer.ready and peer.id != self._me],
            leaderless_for=timedelta(seconds=leaderless_s),
            forced_takeover_after=self._forced_takeover_after,
        )
