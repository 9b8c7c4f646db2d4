"""Prometheus metrics of a daemon's local store: read when they are asked for, from memory.

The registry is handed in, so that tests have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blobsync import DiskCondition, DiskState, Readiness, ScrubProgress, SyncProgress


class SyncMetrics(Collector):
    """What comes to this disk, and how it does there.

    Args:
        registry: Where it is asked for.
        progress: Of the syncer.
        readiness: Of the syncer.
        scrub: Of the syncer.
        disk: Of the local store.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        progress: Callable[[], SyncProgress],
        readiness: Callable[[], Readiness],
        scrub: Callable[[], ScrubProgress],
        disk: Callable[[], DiskState],
    ) -> None:
        self._progress, self._readiness, self._scrub, self._disk = progress, readiness, scrub, disk
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing is asked at registration, when the parts may not be built."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield from self._synced(self._progress())
        yield from self._scrubbed(self._scrub())
        yield _counter(
            "nimbus_quarantined_files_total",
            "Files found damaged on this disk.",
            self._readiness().quarantined_count,
        )
        condition = self._disk().condition
        state = GaugeMetricFamily(
            "nimbus_disk_state", "1 for the state of the local store's disk.", labels=("state",)
        )
        for each in DiskCondition:
            state.add_metric((each.value,), each is condition)
        yield state

    @staticmethod
    def _synced(progress: SyncProgress) -> Iterator[Metric]:
        yield _counter(
            "nimbus_sync_fetched_bytes_total",
            "Bytes that came from storage, wanted or not, good or bad.",
            progress.fetched_bytes,
        )
        yield _counter(
            "nimbus_sync_fetched_objects_total", "Objects that came whole and good.", progress.fetched_objects
        )
        yield _gauge("nimbus_sync_done_bytes", "Of wanted objects, here or under way.", progress.done_bytes)
        yield _gauge("nimbus_sync_total_bytes", "Of all wanted objects.", progress.total_bytes)

    @staticmethod
    def _scrubbed(scrub: ScrubProgress) -> Iterator[Metric]:
        share = scrub.done_releases / scrub.total_releases if scrub.total_releases else 0.0
        yield _gauge("nimbus_scrub_running", "1 while this daemon reads its store anew.", scrub.is_running)
        yield _gauge("nimbus_scrub_progress_ratio", "How much of the round, or the last one, is done.", share)
        yield _counter("nimbus_scrub_rounds_total", "Rounds that this daemon ended.", scrub.finished_rounds)
        yield _counter("nimbus_scrub_damaged_objects_total", "Damage they found.", scrub.damaged_objects)
        yield _counter(
            "nimbus_scrub_failed_objects_total", "What the disk did not give them.", scrub.failed_objects
        )
        finished_at = scrub.finished_at
        yield _gauge(
            "nimbus_scrub_finished_timestamp_seconds",
            "When this daemon last ended one; 0: not since its start.",
            0.0 if finished_at is None else finished_at.timestamp(),
        )


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(name, words, value=value)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=float(value))
