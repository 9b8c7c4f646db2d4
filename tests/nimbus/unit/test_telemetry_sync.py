"""Metrics of the local store, as they are scraped."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from blobsync import DiskCondition, DiskState, ScrubProgress, SyncProgress
from nimbus.telemetry.daemon import SyncMetrics


class Store:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.progress, self.scrub, self.disk = SyncProgress(), ScrubProgress(), DiskState()
        SyncMetrics(
            self.registry,
            progress=lambda: self.progress,
            scrub=lambda: self.scrub,
            disk=lambda: self.disk,
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_values_are_those_of_the_moment_they_are_asked_for() -> None:
    store = Store()
    assert store.value("nimbus_sync_fetched_bytes_total") == 0

    store.progress = SyncProgress(done_bytes=3, total_bytes=9, fetched_bytes=7, fetched_objects=2)

    assert store.value("nimbus_sync_fetched_bytes_total") == 7
    assert store.value("nimbus_sync_fetched_objects_total") == 2
    assert (store.value("nimbus_sync_done_bytes"), store.value("nimbus_sync_total_bytes")) == (3, 9)


def test_disk_is_in_one_state() -> None:
    store = Store()
    store.disk = DiskState(DiskCondition.FULL, "no space")

    states = {each.value: store.value("nimbus_disk_state", state=each.value) for each in DiskCondition}

    assert states == {each.value: float(each is DiskCondition.FULL) for each in DiskCondition}


def test_scrub_is_told() -> None:
    store = Store()
    assert store.value("nimbus_scrub_progress_ratio") == 0
    assert store.value("nimbus_scrub_finished_timestamp_seconds") == 0
    at = datetime(2026, 3, 1, tzinfo=UTC)
    store.scrub = ScrubProgress(
        is_running=True,
        done_releases=1,
        total_releases=4,
        damaged_objects=2,
        failed_objects=3,
        finished_rounds=5,
        finished_at=at,
    )

    assert store.value("nimbus_scrub_running") == 1
    assert store.value("nimbus_scrub_progress_ratio") == 0.25
    assert store.value("nimbus_scrub_damaged_objects_total") == 2
    assert store.value("nimbus_scrub_failed_objects_total") == 3
    assert store.value("nimbus_scrub_rounds_total") == 5
    assert store.value("nimbus_scrub_finished_timestamp_seconds") == at.timestamp()


def test_text_form_has_them() -> None:
    text = generate_latest(Store().registry).decode()

    assert "# TYPE nimbus_sync_fetched_bytes_total counter" in text
    assert 'nimbus_disk_state{state="ok"} 1.0' in text
