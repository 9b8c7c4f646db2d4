"""Builds the purges of runs by a scheduler's collector: by `retention` and by users' orders."""

from __future__ import annotations

from collections.abc import Callable

from nimbus.adapters.s3_history import S3History
from nimbus.adapters.zookeeper.whole import ZooKeeperWholeState
from nimbus.bootstrap.foundation import Foundation, data_connection
from nimbus.config.settings import Settings
from nimbus.scheduler.collector import Collector
from nimbus.scheduler.output_places import BucketOutputs, FolderOutputs
from nimbus.scheduler.purge import ORDERS_EVERY, OutputPlace, RunPurge
from nimbus.telemetry.artifacts import GarbageMetrics
from nimbus.worker.connections import open_data


def add_purges(
    collector: Collector, foundation: Foundation, metrics: GarbageMetrics, leads: Callable[[], bool]
) -> None:
    """Add purges, which work while the scheduler leads, to its collector."""
    settings = foundation.settings
    purge = RunPurge(
        history=S3History(foundation.store),
        store=foundation.store,
        outputs=output_place(settings, leads, metrics),
        state=ZooKeeperWholeState(foundation.session, settings.cluster.root),
        leads=leads,
        retention=settings.retention,
        clock=foundation.clock,
        metrics=metrics,
    )
    collector.add(purge.carry_out_orders, ORDERS_EVERY, leads)
    if settings.retention.by_part():
        collector.add(purge.apply_retention, settings.retention.interval, leads)


def output_place(settings: Settings, leads: Callable[[], bool], metrics: GarbageMetrics) -> OutputPlace:
    """The storage of outputs, from `worker.data`."""
    if (where := data_connection(settings)) is not None:
        return BucketOutputs(open_data(where), leads, metrics)
    worker = settings.worker
    is_known = worker.data is not None or worker.shared_dir is not None
    return FolderOutputs(worker.data_dir if is_known else None, metrics)
