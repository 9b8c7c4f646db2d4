"""A failing disk is checked at growing intervals."""

from __future__ import annotations

from datetime import timedelta

import pytest

from blobsync import RetryPolicy
from blobsync.sync.task_queue import DiskWatch


@pytest.fixture
def watch() -> DiskWatch:
    return DiskWatch(RetryPolicy(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=4)), lambda: 1.0)


def test_disk_that_is_well_is_never_asked(watch: DiskWatch) -> None:
    assert not watch.is_due(True, 0)
    assert watch.due_s is None
    assert not watch.is_due(True, 1e9)


def test_disk_in_trouble_is_asked_less_and_less_often(watch: DiskWatch) -> None:
    now, waits = 0.0, []
    assert not watch.is_due(False, now), "it has just failed"
    for _ in range(4):
        due = watch.due_s
        assert due is not None
        assert not watch.is_due(False, due - 0.01)
        assert watch.is_due(False, due)
        waits.append(due - now)
        now = due

    assert waits == [1, 2, 4, 4]


def test_disk_that_is_well_again_and_fails_anew_is_asked_soon(watch: DiskWatch) -> None:
    for now in range(5):
        watch.is_due(False, 10.0 * now)
    watch.is_due(True, 60)

    watch.is_due(False, 70)

    assert watch.due_s == 71
