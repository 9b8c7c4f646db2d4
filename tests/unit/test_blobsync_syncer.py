"""The syncer with its threads, on a store that fails on demand."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    LocalStore,
    Readiness,
    ReleaseAbsentError,
    ReleaseCorruptError,
    ReleaseRef,
    ReleaseState,
    RetryPolicy,
    StoreAccessDeniedError,
    StoreUnavailableError,
    Syncer,
    SyncerClosedError,
    collect,
    gc,
    publish,
)
from blobsync.testing.memory import MemoryObjectStore

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=5), max_wait=timedelta(milliseconds=50))
NEVER = timedelta(days=1)
SOON = timedelta(seconds=20)
Eventually = Callable[..., None]


class Rig:
    """A store with releases, and syncers of a local store that is reopened at will."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryObjectStore()
        self.seen: list[Readiness] = []
        self._open: list[tuple[Syncer, LocalStore]] = []

    def publish(self, name: str, **files: str) -> ReleaseRef:
        source = self.folder / "src" / name
        for file, text in files.items():
            source.mkdir(parents=True, exist_ok=True)
            (source / file).write_text(text)
        made = publish(self.store, name=name, files=collect(source, include=["**"]))
        return ReleaseRef(name, made.digest)

    def key(self, ref: ReleaseRef, file: str) -> str:
        from blobsync import fetch_manifest

        artifacts = fetch_manifest(self.store, ref.name, ref.digest).artifacts
        return next(f"blobs/{item.sha256}" for item in artifacts if item.path == file)

    def syncer(
        self,
        *wanted: ReleaseRef,
        scrub: timedelta = NEVER,
        look: timedelta = NEVER,
        retry: RetryPolicy = QUICK,
        start: bool = True,
    ) -> Syncer:
        local = LocalStore(self.folder / "local")
        made = Syncer(
            self.store,
            local,
            retry=retry,
            on_change=self.seen.append,
            scrub_interval=scrub,
            look_interval=look,
        )
        self._open.append((made, local))
        if start:
            made.start()
            made.want(set(wanted))
        return made

    def stop(self) -> None:
        for syncer, local in self._open:
            syncer.close(SOON)
            local.close()
        self._open.clear()

    def local_blob(self, key: str) -> Path:
        digest = key.rpartition("/")[2]
        return self.folder / "local" / "blobs" / digest[:2] / digest


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.stop()


def state_of(syncer: Syncer, ref: ReleaseRef) -> ReleaseState | None:
    found = syncer.readiness().releases.get(ref)
    return None if found is None else found.state


def test_wanted_releases_become_ready_and_this_is_told(rig: Rig, eventually: Eventually) -> None:
    p, q = rig.publish("p", a="1", b="22"), rig.publish("q", c="333")
    syncer = rig.syncer(p, q)

    eventually(lambda: syncer.readiness().releases and syncer.readiness().all_ready)

    eventually(lambda: rig.seen and rig.seen[-1] == syncer.readiness())
    assert syncer.progress().done_bytes == syncer.progress().total_bytes == 6
    assert {path.name: path.read_text() for path in syncer.ensure(p, SOON).iterdir()} == {"a": "1", "b": "22"}


def test_ready_release_stays_ready_without_the_store_after_a_restart(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1")
    first = rig.syncer(p)
    eventually(lambda: first.readiness().is_ready(p))
    rig.stop()
    rig.store.unavailable = True

    again = rig.syncer(p)

    eventually(lambda: again.readiness().is_ready(p))
    assert (again.ensure(p, SOON) / "a").read_text() == "1"


def test_unknown_release_is_unavailable_while_the_store_is_and_heals_by_itself(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1")
    rig.store.unavailable = True
    syncer = rig.syncer(p)
    eventually(lambda: state_of(syncer, p) is ReleaseState.UNAVAILABLE)

    rig.store.unavailable = False

    eventually(lambda: syncer.readiness().is_ready(p))


def test_denied_access_is_unavailable_with_the_reason(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="1")
    rig.store.fail(f"releases/p/{p.digest}.json", StoreAccessDeniedError("wrong key"))
    syncer = rig.syncer(p)

    eventually(lambda: state_of(syncer, p) is ReleaseState.UNAVAILABLE)
    assert syncer.readiness().releases[p].reason == "wrong key"
    with pytest.raises(StoreAccessDeniedError):
        syncer.ensure(p, SOON)


def test_release_or_blob_that_does_not_exist_is_absent_until_it_is_published(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1", b="2")
    nothing = ReleaseRef("p", "0" * 64)
    rig.store.lose(rig.key(p, "a"))
    syncer = rig.syncer(p, nothing)

    eventually(lambda: state_of(syncer, nothing) is state_of(syncer, p) is ReleaseState.ABSENT)
    eventually(lambda: [item.path for item in syncer.readiness().releases[p].missing] == ["a"])

    rig.publish("p")
    eventually(lambda: syncer.readiness().is_ready(p))
    assert state_of(syncer, nothing) is ReleaseState.ABSENT


@pytest.mark.parametrize("kind", ["corrupt", "truncate", "lose", "fail"])
def test_one_poisoned_artifact_holds_up_nothing_else(rig: Rig, eventually: Eventually, kind: str) -> None:
    many = {f"f{number}": str(number) * 100 for number in range(300)}
    p, q = rig.publish("p", **many), rig.publish("q", other="x")
    poison = rig.key(p, "f7")
    {
        "corrupt": lambda: rig.store.corrupt(poison),
        "truncate": lambda: rig.store.truncate(poison, 10),
        "lose": lambda: rig.store.lose(poison),
        "fail": lambda: rig.store.fail(poison, StoreUnavailableError("500 for this key only")),
    }[kind]()
    syncer = rig.syncer(p, q)

    eventually(lambda: syncer.readiness().is_ready(q))
    eventually(lambda: [item.path for item in syncer.readiness().releases[p].missing] == ["f7"], within_s=30)
    expected = {"corrupt": ReleaseState.CORRUPT, "lose": ReleaseState.ABSENT}.get(
        kind, ReleaseState.UNAVAILABLE
    )
    eventually(lambda: state_of(syncer, p) is expected)
    assert not rig.local_blob(poison).exists()

    rig.store.heal(poison)
    rig.publish("p")
    eventually(lambda: syncer.readiness().is_ready(p))


def test_each_blob_is_fetched_once(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", **{f"f{number}": str(number) for number in range(50)})
    syncer = rig.syncer(p)

    eventually(lambda: syncer.readiness().is_ready(p))
    syncer.ensure(p, SOON)

    assert {key: count for key, count in rig.store.reads.items() if count > 1} == {}


def flip_a_byte_unseen(path: Path) -> None:
    """Without a moment in which the file is anything else: a scrub may be at it."""
    before = path.stat()
    path.chmod(0o644)
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, bytes([os.pread(fd, 1, 0)[0] ^ 1]), 0)
        os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))  # by now it may have been moved away
    finally:
        os.close(fd)


def test_scrub_finds_a_flipped_byte_quarantines_reports_and_fetches_anew(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="some data", b="other")
    syncer = rig.syncer(p, scrub=timedelta(milliseconds=200))
    eventually(lambda: syncer.readiness().is_ready(p))
    blob = rig.local_blob(rig.key(p, "a"))
    rig.store.unavailable = True  # so that the loss can be seen
    flip_a_byte_unseen(blob)

    eventually(lambda: not syncer.readiness().is_ready(p))
    assert [item.path for item in syncer.readiness().releases[p].missing] == ["a"]
    assert syncer.readiness().quarantined_count == 1
    assert len(list((rig.folder / "local" / "quarantine").iterdir())) == 1

    rig.store.unavailable = False
    eventually(lambda: syncer.readiness().is_ready(p))
    assert blob.read_text() == "some data"
    assert (syncer.ensure(p, SOON) / "a").read_text() == "some data"


def test_removed_file_is_noticed_by_a_look_and_fetched_anew(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="1")
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))
    eventually(lambda: syncer.readiness().is_ready(p))
    blob = rig.local_blob(rig.key(p, "a"))

    blob.unlink()

    eventually(blob.exists)
    eventually(lambda: syncer.readiness().is_ready(p))


def test_retry_now_ends_a_long_back_off(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="1")
    rig.store.unavailable = True
    slow = RetryPolicy(first_wait=timedelta(hours=1), max_wait=timedelta(hours=1))
    syncer = rig.syncer(p, retry=slow)
    eventually(lambda: state_of(syncer, p) is ReleaseState.UNAVAILABLE)
    rig.store.unavailable = False

    syncer.retry_now()

    eventually(lambda: syncer.readiness().is_ready(p))


def test_ensure_brings_a_release_that_nobody_wanted_without_start(rig: Rig) -> None:
    p = rig.publish("p", a="1")
    syncer = rig.syncer(start=False)

    assert (syncer.ensure(p, SOON) / "a").read_text() == "1"


def test_ensure_says_why_it_cannot(rig: Rig) -> None:
    p, q = rig.publish("p", a="1", b="2"), rig.publish("q", c="3")
    rig.store.lose(rig.key(p, "a"))
    rig.store.corrupt(rig.key(q, "c"))
    syncer = rig.syncer(start=False)

    with pytest.raises(ReleaseAbsentError, match="p@"):
        syncer.ensure(ReleaseRef("p", "0" * 64), SOON)
    with pytest.raises(ReleaseAbsentError):
        syncer.ensure(p, SOON)
    with pytest.raises(ReleaseCorruptError):
        syncer.ensure(q, SOON)
    rig.store.unavailable = True
    with pytest.raises(StoreUnavailableError):
        syncer.ensure(q, timedelta(milliseconds=50))


def test_ensure_waits_for_a_store_that_comes_back(rig: Rig) -> None:
    p = rig.publish("p", a="1")

    class Returning(MemoryObjectStore):
        def read(self, key: str) -> Iterator[bytes]:
            self.reads["all"] += 1
            if self.reads["all"] < 4:
                raise StoreUnavailableError("not yet")
            yield from rig.store.read(key)

    rig.store, inner = Returning(), rig.store
    syncer = rig.syncer(start=False)
    rig.store = inner

    assert (syncer.ensure(p, SOON) / "a").read_text() == "1"


def test_ensured_release_is_not_collected_until_let_go(rig: Rig) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    syncer = rig.syncer(start=False)
    tree = syncer.ensure(p, SOON)
    syncer.ensure(q, SOON)
    with LocalStore(rig.folder / "local") as collector:
        for _ in range(2):
            gc(collector, {q.digest}, grace=timedelta(0))
        assert (tree / "a").read_text() == "1"

        syncer.let_go(p)
        for _ in range(2):
            gc(collector, {q.digest}, grace=timedelta(0))
        assert not tree.exists()


def test_wanted_release_is_not_collected_by_another_user_of_the_store(
    rig: Rig, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    syncer = rig.syncer(p, q)
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().is_ready(q))
    with LocalStore(rig.folder / "local") as collector:
        for _ in range(2):
            gc(collector, {q.digest}, grace=timedelta(0))

        assert rig.local_blob(rig.key(p, "a")).exists()
        assert collector.manifest(p) is not None


def test_close_interrupts_a_transfer_under_way_and_ends_every_thread(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1" * 100)
    reading, go_on = threading.Event(), threading.Event()
    original = rig.store.read

    def endless(key: str) -> Iterator[bytes]:
        if not key.startswith("blobs/"):
            yield from original(key)
            return
        reading.set()
        while not go_on.wait(0.01):
            yield b""

    rig.store.read = endless  # type: ignore[method-assign]
    syncer = rig.syncer(p)
    eventually(reading.is_set)

    syncer.close(SOON)

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("blobsync-")]
    assert list((rig.folder / "local").glob("sessions/*/part-*")) == []
    with pytest.raises(SyncerClosedError):
        syncer.ensure(p, SOON)


def test_listener_that_fails_does_not_stop_the_sync(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="1")

    class Broken(list[Readiness]):
        def append(self, _item: Readiness) -> None:
            raise RuntimeError("a defect of whoever listens")

    rig.seen = Broken()
    syncer = rig.syncer(p)

    eventually(lambda: syncer.readiness().is_ready(p))


def test_unwanted_release_leaves_readiness(rig: Rig, eventually: Eventually) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    syncer = rig.syncer(p, q)
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().is_ready(q))

    syncer.want({q})

    eventually(lambda: set(syncer.readiness().releases) == {q})
    assert not syncer.readiness().is_ready(p)


def test_importing_the_package_does_not_import_the_s3_client() -> None:
    import subprocess
    import sys

    code = "import sys, blobsync; sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
