"""An object that is damaged in the bucket is not downloaded again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import CorruptBlobError, ObjectInfo, ReleaseCorruptError, ReleaseState, RetryPolicy
from blobsync.sync.damage import LONGEST_S, DamagedObjects
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.sync_samples import SOON, Rig, state_of

OFTEN = RetryPolicy(first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=5))
Eventually = Callable[..., None]


class Listed(MemoryObjectStore):
    """Counts listings of one key."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.reads[f"list {prefix}"] += 1
        return super().list(prefix, start_after)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.store = Listed()
    yield made
    made.stop()


def test_damaged_object_is_downloaded_less_and_less_often_and_at_once_when_it_changes(
    rig: Rig, eventually: Eventually
) -> None:
    ref = rig.publish("p", a="1")
    key = rig.key(ref, "a")
    rig.store.corrupt(key, 20)
    syncer = rig.syncer(ref, retry=OFTEN)

    eventually(lambda: rig.store.reads[f"list {key}"] > 60)

    assert state_of(syncer, ref) is ReleaseState.CORRUPT
    assert rig.store.reads[key] < 60
    assert "it is fetched again when it is written again" in syncer.readiness().releases[ref].reason

    rig.store.heal(key)
    rig.put(rig.samples[ref])
    eventually(lambda: syncer.readiness().is_ready(ref))


@pytest.mark.parametrize("how", ["ensure", "retry_now"])
def test_damaged_object_is_downloaded_when_somebody_asks(rig: Rig, eventually: Eventually, how: str) -> None:
    ref = rig.publish("p", a="1")
    key = rig.key(ref, "a")
    rig.store.corrupt(key, 20)
    syncer = rig.syncer(ref, retry=OFTEN)
    eventually(lambda: rig.store.reads[f"list {key}"] > 60)
    if how == "ensure":
        before = rig.store.reads[key]
        with pytest.raises(ReleaseCorruptError):
            syncer.ensure(ref, SOON)
        assert rig.store.reads[key] > before
        rig.store.heal(key)
        syncer.ensure(ref, SOON)
    else:
        rig.store.heal(key)
        syncer.retry_now()
        eventually(lambda: syncer.readiness().is_ready(ref))


def test_wait_doubles_up_to_an_hour_and_ends_with_a_change_or_a_success() -> None:
    store, now_s = MemoryObjectStore(), 0.0
    store.write("k", b"1")
    damage = DamagedObjects(store, timedelta(seconds=1), lambda: now_s)
    for tries in range(20):
        damage.refuse_unchanged("k")  # the first time it is not known when the object was written
        damage.note("k", "wrong")
        wait_s = min(2.0**tries, LONGEST_S)
        if tries:
            now_s += wait_s - 0.5
            with pytest.raises(CorruptBlobError, match="wrong; it is fetched again"):
                damage.refuse_unchanged("k")
            now_s += 0.5
    damage.note("k", "wrong")
    store.write("k", b"22")
    damage.refuse_unchanged("k")
    damage.note("k", "wrong")
    damage.forget("k")
    damage.refuse_unchanged("k")
