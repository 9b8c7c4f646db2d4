"""Prometheus metrics of a daemon's local store, computed from memory at each scrape.

The registry is an argument, so that tests have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blobsync import DiskCondition, DiskState, ScrubProgress, SyncProgress


class SyncMetrics(Collector):
    """Metrics of the sync, the scrub and the disk.

    Args:
        registry: The registry to join.
        progress: Progress of the syncer.
        scrub: Progress of the scrub.
        disk: State of the local store's disk.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        progress: Callable[[], SyncProgress],
        scrub: Callable[[], ScrubProgress],
        disk: Callable[[], DiskState],
    ) -> None:
        self._progress, self._scrub, self._disk = progress, scrub, disk
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registration does not call `collect` before the parts exist."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield from self._synced(self._progress())
        yield from self._scrubbed(self._scrub())
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
            "Bytes fetched from storage, including damaged and unneeded ones.",
            progress.fetched_bytes,
        )
        yield _counter(
            "nimbus_sync_fetched_objects_total", "Objects fetched and verified.", progress.fetched_objects
        )
        yield _gauge("nimbus_sync_done_bytes", "Needed bytes, here or under way.", progress.done_bytes)
        yield _gauge("nimbus_sync_total_bytes", "All needed bytes.", progress.total_bytes)

    @staticmethod
    def _scrubbed(scrub: ScrubProgress) -> Iterator[Metric]:
        share = scrub.done_releases / scrub.total_releases if scrub.total_releases else 0.0
        yield _gauge("nimbus_scrub_running", "1 while this daemon scrubs its store.", scrub.is_running)
        yield _gauge("nimbus_scrub_progress_ratio", "Progress of the current or last round.", share)
        yield _counter("nimbus_scrub_rounds_total", "Completed rounds of the scrub.", scrub.finished_rounds)
        yield _counter(
            "nimbus_scrub_damaged_objects_total",
            "Objects and manifests that the scrub found damaged; not what a look finds, or in trees.",
            scrub.damaged_objects,
        )
        yield _counter(
            "nimbus_scrub_failed_objects_total",
            "Objects, manifests and layouts that the scrub could not read.",
            scrub.failed_objects,
        )
        finished_at = scrub.finished_at
        yield _gauge(
            "nimbus_scrub_finished_timestamp_seconds",
            "When this daemon last completed a scrub; 0: not since its start.",
            0.0 if finished_at is None else finished_at.timestamp(),
        )


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(name, words, value=value)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=float(value))
