"""The reported progress of the scrub."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from blobsync import LocalStore, LocalStoreError, ScrubProgress
from tests.blobsync.local_store_samples import flip_a_byte_unseen, sample
from tests.blobsync.sync_samples import Rig

Eventually = Callable[..., None]
OFTEN = timedelta(milliseconds=200)


def test_rounds_and_what_they_found_are_counted(rig: Rig, eventually: Eventually) -> None:
    p, q = rig.put(sample({"a": b"some data"})), rig.publish("q", b="other data")
    syncer = rig.syncer(p, q, scrub=OFTEN)
    assert syncer.scrub_progress() == ScrubProgress()
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().is_ready(q))

    rounds = syncer.scrub_progress().finished_rounds
    eventually(lambda: syncer.scrub_progress().finished_rounds >= rounds + 2)
    eventually(lambda: not syncer.scrub_progress().is_running)
    told = syncer.scrub_progress()
    assert (told.done_releases, told.total_releases, told.done_objects) == (2, 2, 2)
    assert told.finished_at is not None
    assert (told.damaged_objects, told.failed_objects) == (0, 0)

    flip_a_byte_unseen(rig.path(p, "a"))

    eventually(lambda: syncer.scrub_progress().damaged_objects == 1)


def test_round_under_way_says_so(rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ignore_progress = threading.Event(), threading.Event()
    scrub = LocalStore.scrub_object

    def slow(self: LocalStore, *args: object, **named: object) -> bool:
        begun.set()
        ignore_progress.wait(60)
        return scrub(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStore, "scrub_object", slow)
    p = rig.publish("p", a="some data")
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(begun.is_set)

    told = syncer.scrub_progress()
    ignore_progress.set()

    assert (told.is_running, told.done_releases, told.total_releases) == (True, 0, 1)


def test_what_the_disk_does_not_give_is_counted(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_named: object) -> bool:
        raise LocalStoreError("a bad sector")

    monkeypatch.setattr(LocalStore, "scrub_object", fails)
    syncer = rig.syncer(rig.publish("p", a="some data"), scrub=OFTEN)

    eventually(lambda: syncer.scrub_progress().failed_objects > 0)


def test_round_that_breaks_off_is_not_finished(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = threading.Event()

    def gone(*_args: object, **_named: object) -> None:
        broke.set()
        raise OSError("gone")

    monkeypatch.setattr(LocalStore, "scrub_tree", gone)
    p = rig.publish("p", a="some data", b="more data")
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p))
    rounds = []
    for _ in range(2):
        broke.clear()
        eventually(broke.is_set)
        rounds.append(syncer.scrub_progress().finished_rounds)

    assert rounds[0] == rounds[1]
    eventually(lambda: not syncer.scrub_progress().is_running)
    told = syncer.scrub_progress()
    assert (told.done_releases, told.total_releases) == (0, 1)


def test_rounds_that_all_break_off_reach_each_release_in_the_end(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a daemon that is restarted more often than a round takes: each round starts again."""
    reached = set[object]()

    def breaks_off(_self: LocalStore, item: object, **_named: object) -> bool:
        reached.add(item)
        raise OSError("gone")

    monkeypatch.setattr(LocalStore, "scrub_object", breaks_off)
    p, q = rig.publish("p", a="some data"), rig.publish("q", b="other data")
    rig.syncer(p, q, scrub=timedelta(milliseconds=20))

    eventually(lambda: len(reached) == 2)
