"""Builds what collects garbage: on this disk, and, in a scheduler, in the bucket."""

from __future__ import annotations

from collections.abc import Callable

from nimbus.adapters.zookeeper.whole import ZooKeeperWholeState
from nimbus.bootstrap.foundation import Foundation, retry_policy
from nimbus.scheduler.collector import Collector
from nimbus.scheduler.garbage import BucketGarbage, LocalGarbage
from nimbus.telemetry.artifacts import GarbageMetrics


def build_collector(
    foundation: Foundation, metrics: GarbageMetrics, *, leads: Callable[[], bool] | None
) -> Collector:
    """What the settings ask for.

    Args:
        foundation: Settings, ZooKeeper, S3, disk.
        metrics: What is counted.
        leads: Whether this process leads now; None: it never does, so the bucket is not its business.
    """
    settings, artifacts = foundation.settings, foundation.settings.artifacts
    state = ZooKeeperWholeState(foundation.session, settings.cluster.root)
    collector = Collector(foundation.clock)
    if artifacts.local_gc:
        on_disk = LocalGarbage(store=foundation.local, state=state, artifacts=artifacts, metrics=metrics)
        collector.add(on_disk.collect, artifacts.local_gc_interval)
    if artifacts.gc and leads is not None:
        in_bucket = BucketGarbage(
            store=foundation.store,
            state=state,
            leads=leads,
            artifacts=artifacts,
            retry=retry_policy(settings),
            metrics=metrics,
        )
        collector.add(in_bucket.collect, artifacts.gc_interval, leads)
    return collector
