"""A scheduler's estimate of the remaining time of its sync."""

from __future__ import annotations

from blobsync import SyncProgress
from nimbus.scheduler.health import SyncRate


def came(fetched_bytes: int, total_bytes: int = 1000) -> SyncProgress:
    return SyncProgress(done_bytes=fetched_bytes, total_bytes=total_bytes, fetched_bytes=fetched_bytes)


def test_time_left_is_the_missing_bytes_at_the_speed_of_the_last_half_minute() -> None:
    rate = SyncRate()

    assert rate.left_s(came(0), 0.0) is None, "nothing is known yet"
    assert rate.left_s(came(100), 10.0) == 90.0
    assert rate.left_s(came(600), 40.0) == 24.0, "what came before the half minute does not count"


def test_nothing_is_said_while_nothing_comes() -> None:
    rate = SyncRate()
    rate.left_s(came(0), 0.0)
    rate.left_s(came(500), 10.0)

    assert rate.left_s(came(500), 20.0) == 20.0
    assert rate.left_s(came(500), 45.0) is None


def test_a_look_right_after_another_changes_nothing() -> None:
    rate = SyncRate()
    rate.left_s(came(0), 0.0)
    for hundredth in range(1, 200):
        rate.left_s(came(hundredth), hundredth / 100)

    assert rate.left_s(came(200), 2.0) == 8.0


def test_a_sync_that_begins_long_after_the_last_one_has_its_own_speed() -> None:
    rate = SyncRate()
    rate.left_s(came(0), 0.0)
    rate.left_s(came(1000), 10.0)

    assert rate.left_s(came(1010, 2000), 3600.0) is None, "nothing is known yet"
    assert rate.left_s(came(1110, 2000), 3610.0) == 89.0


def test_what_is_missing_takes_at_least_a_second() -> None:
    rate = SyncRate()
    rate.left_s(came(0), 0.0)

    assert rate.left_s(came(999), 10.0) == 1.0
