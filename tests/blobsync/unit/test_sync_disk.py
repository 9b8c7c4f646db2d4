"""A failing disk and readiness: the failure is reported, harms nothing, and its end is reported, too."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Set
from datetime import timedelta

import pytest

from blobsync import DiskCondition, LocalStore, LocalStoreError, ReleaseState
from blobsync.local import disk_state
from tests.blobsync.local_store_samples import bring, sample
from tests.blobsync.sync_samples import QUICK, SOON, Rig, lacks, state_of

Eventually = Callable[..., None]
SHORT = timedelta(milliseconds=100)


class Trouble:
    """A disk that refuses writes while the test wants it."""

    def __init__(self, *steps: str) -> None:
        self.kind: int | None = None
        self.steps = steps or ("receive-open", "fsync", "document-write", "ask-disk")
        self.refused = 0

    def step(self, name: str) -> None:
        if self.kind is not None and name in self.steps:
            self.refused += 1
            raise OSError(self.kind, "asked for by a test")


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        (errno.ENOSPC, DiskCondition.FULL),
        (errno.EROFS, DiskCondition.READ_ONLY),
        (errno.EACCES, DiskCondition.DENIED),
    ],
)
def test_disk_trouble_is_told_what_is_here_stays_ready_and_it_goes_on_when_it_heals(
    rig: Rig, eventually: Eventually, kind: int, condition: DiskCondition
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    trouble = Trouble()
    syncer = rig.syncer(p, local=LocalStore(rig.folder / "local", on_step=trouble.step))
    eventually(lambda: syncer.readiness().is_ready(p))

    trouble.kind = kind
    syncer.want([p, q])

    eventually(lambda: syncer.readiness().disk.condition is condition)
    eventually(lambda: state_of(syncer, q) is ReleaseState.SYNCING and lacks(syncer, q, ["b"]))
    eventually(lambda: "asked for by a test" in syncer.readiness().releases[q].reason)
    assert syncer.readiness().is_ready(p)

    trouble.kind = None
    eventually(lambda: syncer.readiness().is_ready(q))
    eventually(lambda: syncer.readiness().disk.ok)


def test_what_is_wanted_is_protected_as_soon_as_a_full_disk_lets_that_be_noted(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    held: list[frozenset[str]] = []
    full = threading.Event()

    class Refusing(LocalStore):
        def hold(self, releases: Set[str], at_most_s: float | None = None) -> None:
            if full.is_set():
                raise LocalStoreError("full")
            super().hold(releases, at_most_s)
            held.append(frozenset(releases))

    syncer = rig.syncer(p, local=Refusing(rig.folder / "local"), look=timedelta(milliseconds=20))
    eventually(lambda: syncer.readiness().is_ready(p))
    full.set()
    syncer.want([p, q])
    eventually(lambda: syncer.readiness().is_ready(q))
    assert (syncer.ensure(p, SOON) / "a").exists(), "the release is already protected"
    with pytest.raises(LocalStoreError):
        syncer.ensure(q, timedelta(milliseconds=100))
    assert held == [{p.digest}]

    full.clear()

    eventually(lambda: held[-1] == {p.digest, q.digest})


def test_refusal_while_somebody_waits_is_told_and_room_is_noticed_though_nothing_is_to_be_written(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1")
    syncer = rig.syncer(p)
    eventually(lambda: syncer.readiness().is_ready(p))

    with pytest.MonkeyPatch.context() as full:
        full.setattr(disk_state, "free_bytes", lambda _root: 0)
        with pytest.raises(LocalStoreError, match="make room"):
            syncer.ensure(p, SHORT)
        eventually(lambda: syncer.readiness().disk.condition is DiskCondition.FULL)
        assert syncer.readiness().is_ready(p)

    eventually(lambda: syncer.readiness().disk.ok)


def test_disk_is_not_called_well_while_it_has_less_room_than_it_was_asked_for(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.put(sample({"a": b"1" * 100_000}, members=1))
    syncer = rig.syncer(p)
    eventually(lambda: syncer.readiness().is_ready(p))

    with pytest.MonkeyPatch.context() as full:
        full.setattr(disk_state, "free_bytes", lambda _root: 50_000)
        full.setattr(disk_state, "_VAIN_QUESTIONS", 1000)  # a slow machine must not look like no demand
        with pytest.raises(LocalStoreError, match="make room"):
            syncer.ensure(p, timedelta(seconds=1))  # in this time it tries about twenty times
        first = next(place for place, seen in enumerate(rig.seen) if not seen.disk.ok)
        assert not any(seen.disk.ok for seen in rig.seen[first:])

    eventually(lambda: syncer.readiness().disk.ok)


def test_room_that_nobody_wants_any_more_is_not_asked_for(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_state, "free_bytes", lambda _root: 50_000)
    p, large = rig.publish("p", a="1"), rig.put(sample({"b": os.urandom(2 << 20)}, name="large", members=1))
    syncer = rig.syncer(p, large)
    eventually(lambda: syncer.readiness().is_ready(p))
    eventually(lambda: syncer.readiness().disk.condition is DiskCondition.FULL)

    syncer.want([p])

    eventually(lambda: syncer.readiness().disk.ok)


def test_what_the_disk_refuses_to_others_that_use_the_store_is_told(rig: Rig, eventually: Eventually) -> None:
    p, other = rig.publish("p", a="1"), sample({"b": b"2"})
    trouble = Trouble()
    local = LocalStore(rig.folder / "local", on_step=trouble.step)
    syncer = rig.syncer(p, local=local)
    eventually(lambda: syncer.readiness().is_ready(p))

    trouble.kind = errno.EIO
    with pytest.raises(LocalStoreError):
        bring(local, other.packs[0], other.objects[other.packs[0]])

    eventually(lambda: syncer.readiness().disk.condition is DiskCondition.FAILING)
    trouble.kind = None
    eventually(lambda: syncer.readiness().disk.ok)


def test_disk_is_not_called_well_between_two_tries_of_what_it_refuses(
    rig: Rig, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    trouble = Trouble("fsync")  # only fsync fails, so a check with a few bytes succeeds
    syncer = rig.syncer(p, local=LocalStore(rig.folder / "local", on_step=trouble.step))
    eventually(lambda: syncer.readiness().is_ready(p))
    trouble.kind = errno.ENOSPC

    syncer.want([p, q])

    eventually(lambda: not syncer.readiness().disk.ok)
    first, before = len(rig.seen), trouble.refused
    eventually(lambda: trouble.refused >= before + 20)
    assert not any(seen.disk.ok for seen in rig.seen[first:])


def test_disk_that_hangs_is_asked_once(rig: Rig, eventually: Eventually) -> None:
    healed, asked = threading.Event(), list[float]()

    class Hanging(LocalStore):
        def ask_disk(self) -> None:
            if not self.disk_state().ok:
                asked.append(time.monotonic())
                healed.wait(60)
            super().ask_disk()

    p = rig.publish("p", a="1")
    local = Hanging(rig.folder / "local")
    syncer = rig.syncer(p, local=local, look=timedelta(milliseconds=20))
    eventually(lambda: syncer.readiness().is_ready(p))
    local.context.disk.failed("a test", OSError(errno.EIO, "bad"))
    eventually(lambda: asked)
    until_s = asked[0] + 20 * QUICK.max_wait.total_seconds()
    eventually(lambda: time.monotonic() > until_s)

    assert len(asked) == 1
    assert not syncer.readiness().disk.ok
    healed.set()
    eventually(lambda: syncer.readiness().disk.ok)


def test_what_could_not_be_noted_on_a_full_disk_is_noted_when_it_has_room(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1")
    held: list[frozenset[str]] = []
    full = threading.Event()

    class Refusing(LocalStore):
        def hold(self, releases: Set[str], at_most_s: float | None = None) -> None:
            if full.is_set():
                raise self.context.disk.failed("noting", OSError(errno.ENOSPC, "full"))
            super().hold(releases, at_most_s)
            held.append(frozenset(releases))

    syncer = rig.syncer(p, local=Refusing(rig.folder / "local"))
    eventually(lambda: syncer.readiness().is_ready(p))
    full.set()
    syncer.want([])
    eventually(lambda: not syncer.readiness().disk.ok)
    assert held == [{p.digest}]

    full.clear()

    eventually(lambda: held[-1] == frozenset())
