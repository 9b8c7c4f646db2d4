"""A disk in trouble is asked, less and less often, and one question at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from blobsync import RetryPolicy
from blobsync.sync.agenda import DiskWatch


@pytest.fixture
def watch() -> DiskWatch:
    return DiskWatch(RetryPolicy(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=4)), lambda: 1.0)


def test_disk_that_is_well_is_never_asked(watch: DiskWatch) -> None:
    watch.seen(True, 0)

    assert watch.next_due_s() is None
    assert not watch.is_due(1e9)


def test_disk_in_trouble_is_asked_less_and_less_often(watch: DiskWatch) -> None:
    due = []
    now = 0.0
    for _ in range(4):
        watch.seen(False, now)
        found = watch.next_due_s()
        assert found is not None
        assert not watch.is_due(found - 0.01)
        assert watch.is_due(found)
        due.append(found - now)
        now = found
        watch.asking()
        watch.asked(now)

    assert due == [1, 2, 4, 4]


def test_nothing_is_asked_while_an_answer_is_awaited(watch: DiskWatch) -> None:
    watch.seen(False, 0)
    watch.asking()
    watch.seen(False, 100)

    assert watch.next_due_s() is None
    assert not watch.is_due(1e9)


def test_disk_that_is_well_again_and_fails_anew_is_asked_soon(watch: DiskWatch) -> None:
    watch.seen(False, 0)
    for _ in range(5):
        watch.asking()
        watch.asked(0)
    watch.seen(True, 10)
    assert watch.next_due_s() is None

    watch.seen(False, 20)

    assert watch.next_due_s() == 21
