"""The scrub finds what changed on the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from blobsync import LocalStore
from tests.blobsync.local_store_samples import flip_a_byte_unseen, sample
from tests.blobsync.sync_samples import SOON, Rig, lacks

Eventually = Callable[..., None]
OFTEN = timedelta(milliseconds=200)


@pytest.mark.parametrize("large", [False, True])
def test_scrub_finds_a_flipped_byte_quarantines_reports_and_fetches_anew(
    rig: Rig, eventually: Eventually, large: bool
) -> None:
    data = b"some data" * (600_000 if large else 1)
    p = rig.put(sample({"a": data, "b": b"other"}, members=1))
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p))
    damaged = rig.path(p, "a")
    rig.store.unavailable = True  # so that the lost file is not fetched at once

    flip_a_byte_unseen(damaged)

    eventually(lambda: not syncer.readiness().is_ready(p))
    eventually(lambda: syncer.readiness().quarantined_count == 1)
    # One pack or blob is lost. The report names exactly the files in it.
    assert lacks(syncer, p, ["a"])
    assert len(list((rig.folder / "local" / "quarantine").iterdir())) == 1

    rig.store.unavailable = False
    eventually(lambda: syncer.readiness().is_ready(p))
    assert (syncer.ensure(p, SOON) / "a").read_bytes() == data


def test_flipped_byte_in_a_tree_is_found_and_the_tree_made_anew(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="some data", b="other")
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p))
    tree = syncer.ensure(p, SOON)
    flip_a_byte_unseen(tree / "a")

    eventually(lambda: not (tree / "a").exists())

    assert (syncer.ensure(p, SOON) / "a").read_text() == "some data"


def test_one_process_of_a_host_scrubs_for_all_and_each_learns_of_the_loss(
    rig: Rig, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="some data"), rig.publish("q", b="other data")
    one = rig.syncer(p, scrub=OFTEN, look=timedelta(milliseconds=50))
    other = rig.syncer(q, scrub=OFTEN, look=timedelta(milliseconds=50))
    eventually(lambda: one.readiness().is_ready(p) and other.readiness().is_ready(q))
    rig.store.unavailable = True

    flip_a_byte_unseen(rig.path(p, "a"))
    flip_a_byte_unseen(rig.path(q, "b"))

    eventually(lambda: not one.readiness().is_ready(p) and not other.readiness().is_ready(q))
    eventually(lambda: one.readiness().quarantined_count + other.readiness().quarantined_count == 2)
    rig.store.unavailable = False
    eventually(lambda: one.readiness().is_ready(p) and other.readiness().is_ready(q))


def test_object_of_several_releases_is_hashed_once_in_a_round(rig: Rig, eventually: Eventually) -> None:
    hashed: list[str] = []

    class Noting(LocalStore):
        def scrub_object(self, item, *, on_progress=lambda _: None):  # type: ignore[no-untyped-def]
            hashed.append(item.name)
            return super().scrub_object(item, on_progress=on_progress)

    p, q = rig.publish("p", a="shared", b="1"), rig.publish("q", a="shared", c="2")
    syncer = rig.syncer(p, q, scrub=timedelta(seconds=1), local=Noting(rig.folder / "local"))
    eventually(lambda: syncer.readiness().releases and syncer.readiness().all_ready)

    eventually(lambda: len(hashed) >= 3)
    assert len(set(hashed[:3])) == 3
    assert rig.item(p, "a").name in hashed[:3]


def test_scrub_reads_no_faster_than_it_may_and_ends_at_once_on_close(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.put(sample({"a": b"x" * (3 << 20)}, compress=False))
    syncer = rig.syncer(start=False, scrub=OFTEN, scrub_bytes_per_s=1000)  # a round takes an hour
    took: list[int] = []
    throttle = syncer._scrubber._throttle
    original = throttle.take
    throttle.take = lambda size: took.append(size) or original(size)  # type: ignore[func-returns-value, method-assign]
    syncer.start()
    syncer.want([p])
    eventually(lambda: any(took))

    syncer.close(SOON)

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("blobsync-")]
    assert sum(took) <= 1 << 20
