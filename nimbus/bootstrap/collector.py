"""Builds the garbage collector: for this disk, and, in a scheduler, for the bucket and for purges of runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nimbus.adapters.s3_history import S3History
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.api.services import OutputFiles
from nimbus.bootstrap.resources import Resources, data_connection, retry_policy
from nimbus.config.settings import Settings
from nimbus.scheduler.collector import Collector
from nimbus.scheduler.garbage import BucketGarbage, LocalGarbage
from nimbus.scheduler.output_deletion import BucketOutputs, FolderOutputs, LostOutputs
from nimbus.scheduler.output_files import BucketFiles, FolderFiles
from nimbus.scheduler.purge import ORDERS_EVERY, OutputPlace, RunPurge
from nimbus.telemetry.daemon import GarbageMetrics
from nimbus.worker.attempt.connections import open_data


def build_collector(
    resources: Resources, metrics: GarbageMetrics, *, leads: Callable[[], bool] | None
) -> Collector:
    """The collector that the settings configure.

    `leads`: True while this process leads; None: it never leads, so it does not collect in the bucket.
    """
    settings, artifacts = resources.settings, resources.settings.artifacts
    state = TreeWholeState(calls_on(resources.session), settings.cluster.root)
    collector = Collector(resources.clock)
    if artifacts.local_gc:
        on_disk = LocalGarbage(store=resources.local, state=state, artifacts=artifacts, metrics=metrics)
        collector.add(on_disk.collect, artifacts.local_gc_interval)
    if artifacts.gc and leads is not None:
        in_bucket = BucketGarbage(
            store=resources.store,
            state=state,
            leads=leads,
            artifacts=artifacts,
            retry=retry_policy(settings),
            metrics=metrics,
        )
        collector.add(in_bucket.collect, artifacts.gc_interval, leads)
    if (where := data_connection(settings)) is not None and settings.data.gc and leads is not None:
        outputs = LostOutputs(
            store=open_data(where),
            runs=resources.run,
            leads=leads,
            clock=resources.clock,
            grace=settings.data.gc_grace,
            deleted=partial(metrics.deleted, "outputs"),
        )
        collector.add(outputs.collect, settings.data.gc_interval, leads)
    return collector


def add_purges(
    collector: Collector,
    resources: Resources,
    metrics: GarbageMetrics,
    leads: Callable[[], bool],
    data_mark: Callable[[str], str],
) -> None:
    """Add purges, which work while the scheduler leads. `data_mark`: see `nimbus.ports.Registrations`."""
    settings = resources.settings
    purge = RunPurge(
        history=S3History(resources.store),
        store=resources.store,
        outputs=output_place(settings, leads, data_mark, metrics),
        state=TreeWholeState(calls_on(resources.session), settings.cluster.root),
        leads=leads,
        retention=settings.retention,
        clock=resources.clock,
        metrics=metrics,
    )
    collector.add(purge.carry_out_orders, ORDERS_EVERY, leads)
    if settings.retention.by_part():
        collector.add(purge.apply_retention, settings.retention.interval, leads)


def output_place(
    settings: Settings, leads: Callable[[], bool], data_mark: Callable[[str], str], metrics: GarbageMetrics
) -> OutputPlace:
    """The storage of outputs, from `worker.data`."""
    if (where := data_connection(settings)) is not None:
        return BucketOutputs(open_data(where), leads, metrics)
    worker = settings.worker
    return FolderOutputs(None if worker.data is None else worker.data_dir, data_mark, metrics)


def output_files(settings: Settings, data_mark: Callable[[str], str]) -> OutputFiles:
    """The files of outputs, from `worker.data`. `data_mark`: see `nimbus.ports.Registrations`."""
    worker = settings.worker
    if worker.data_uri is not None:
        return BucketFiles(worker.data_uri, open_data(data_connection(settings)))
    return FolderFiles(None if worker.data is None else worker.data_dir, data_mark)
