"""Releases of plain objects: adopted, synced, watched and collected, on a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobNotFoundError,
    BlobSyncConfigError,
    BlobSyncError,
    LocalStore,
    ReleaseCorruptError,
    ReleaseRef,
    ReleaseState,
    Role,
    SourceChangedError,
    StoreAccessDeniedError,
    UnsafeSourceError,
    adopt,
    collect,
    gc,
    publish,
)
from blobsync.release.blob import CHUNK_BYTES, PACKED_BYTES
from blobsync.release.loose import BUNDLE_FILES
from blobsync.storage import keys
from blobsync.storage.audit import Auditor, Fault
from blobsync.storage.ports import ObjectInfo
from blobsync.storage.reading import read_file
from blobsync.storage.releases import fetch_layout, fetch_manifest
from blobsync.testing.memory import MemoryObjectStore
from blobsync.testing.releases import read_release
from tests.collection_samples import POLICY, Sample, World
from tests.local_store_samples import contents
from tests.sync_samples import QUICK, SOON, Rig, lacks, state_of

Eventually = Callable[..., None]

FILES = {
    "a.py": b"1",
    "lib/b.py": b"22",
    "lib/empty": b"",
    "lib/same.py": b"22",
    "large": b"x" * (PACKED_BYTES + 1),
    "chunked": bytes(range(256)) * (CHUNK_BYTES // 256) + b"end",
}
SMALL = {"a.py": b"1", "b.py": b"22", "c.py": b"333"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.stop()


def lay(rig: Rig, files: dict[str, bytes], prefix: str = "data/v1/") -> None:
    """Put plain objects there, as any tool does."""
    for path, data in files.items():
        rig.store.write(prefix + path, data)


def take(rig: Rig, files: dict[str, bytes], prefix: str = "data/v1/", name: str = "p") -> ReleaseRef:
    """Put them there and adopt them."""
    lay(rig, files, prefix)
    ref = ReleaseRef(name, adopt(rig.store, name=name, prefix=prefix, retry=QUICK).digest)
    rig.store.reads.clear()
    return ref


def synced(rig: Rig, eventually: Eventually, *refs: ReleaseRef) -> None:
    syncer = rig.syncer(*refs)
    eventually(lambda: len(syncer.readiness().releases) == len(refs) and syncer.readiness().all_ready)
    rig.stop()


def local_packs(rig: Rig) -> list[Path]:
    return sorted((rig.folder / "local" / "packs").glob("*/*"))


def test_adopting_reads_each_object_once_and_copies_none(rig: Rig) -> None:
    lay(rig, FILES)
    rig.store.writes.clear()

    made = adopt(rig.store, name="p", prefix="data/v1", retry=QUICK)

    assert {key: rig.store.reads[f"data/v1/{key}"] for key in FILES} == dict.fromkeys(FILES, 1)
    written = [key for key in rig.store.writes if not key.startswith("leases/")]
    assert written[0] == keys.layout("p", made.digest)
    assert written[1].startswith(keys.histories("p"))
    assert written[2:] == [keys.manifest("p", made.digest)]
    assert made.layout.loose == "data/v1/"
    assert made.read_bytes == sum(map(len, FILES.values()))
    assert read_release(rig.store, "p", made.digest) == FILES


def test_adopted_release_is_the_one_that_publishing_the_same_files_gives(rig: Rig, tmp_path: Path) -> None:
    for path, data in FILES.items():
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_bytes(data)
    lay(rig, FILES)

    adopted = adopt(rig.store, name="p", prefix="data/v1/", dependencies=["large"], dry_run=True)
    published = publish(
        MemoryObjectStore(),
        name="p",
        files=collect(tmp_path / "src", include=["**"], dependencies=["large"]),
    )

    assert adopted.manifest == published.manifest
    assert next(item.role for item in adopted.manifest.artifacts if item.path == "large") is Role.DEPENDENCY
    assert not list(rig.store.list("releases/"))


def test_what_was_published_before_stays_in_its_packs(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for path, data in SMALL.items():
        (tmp_path / "src" / path).write_bytes(data)
    published = publish(rig.store, name="p", files=collect(tmp_path / "src", include=["**"]))
    lay(rig, SMALL)

    kept = adopt(rig.store, name="p", prefix="data/v1/")
    rig.store.lose(keys.pack(published.layout.packs[0].name))
    loose = adopt(rig.store, name="p", prefix="data/v1/")

    assert kept.digest == loose.digest == published.digest
    assert kept.layout.packs == published.layout.packs
    assert (kept.layout.loose, loose.layout.loose) == (None, "data/v1/")


def test_adopted_release_is_synced_verified_and_given_as_a_folder(rig: Rig, eventually: Eventually) -> None:
    p = take(rig, FILES)
    syncer = rig.syncer(p)

    eventually(lambda: syncer.readiness().is_ready(p))

    assert contents(syncer.ensure(p, SOON)) == FILES
    eventually(lambda: syncer.progress().done_bytes == syncer.progress().total_bytes > PACKED_BYTES)
    assert syncer.progress().done_objects == syncer.progress().total_objects
    assert rig.store.reads["data/v1/a.py"] == 1
    rig.stop()
    with LocalStore(rig.folder / "local") as local:
        kept = local.kept(p)
        assert kept is not None
        assert [pack.name for pack in kept.layout.packs] == [path.name for path in local_packs(rig)]
        assert kept.layout.loose == "data/v1/"
        assert b"".join(local.read(p, "lib/b.py")) == b"22"


def test_adopted_release_stays_ready_without_the_store_after_a_restart(
    rig: Rig, eventually: Eventually
) -> None:
    p = take(rig, FILES)
    synced(rig, eventually, p)
    rig.store.unavailable = True

    again = rig.syncer(p)

    eventually(lambda: again.readiness().is_ready(p))
    assert contents(again.ensure(p, SOON)) == FILES


def test_what_is_here_is_not_fetched_again_whoever_brought_it(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", members=9, a="1", b="22")
    synced(rig, eventually, p)
    q = take(rig, {"x.py": b"1", "y.py": b"22", "z.py": b"333"}, name="q")

    synced(rig, eventually, q)

    assert rig.store.reads["data/v1/x.py"] == rig.store.reads["data/v1/y.py"] == 0
    assert rig.store.reads["data/v1/z.py"] == 1
    assert len(local_packs(rig)) == 2


def test_releases_that_share_files_fetch_each_once_though_both_are_on_their_way(
    rig: Rig, eventually: Eventually
) -> None:
    files = {f"m{number}.py": f"x = {number}".encode() for number in range(2 * BUNDLE_FILES)}
    p = take(rig, files, "one/", "p")
    q = take(rig, {**files, "more.py": b"more"}, "two/", "q")
    for number in range(0, 2 * BUNDLE_FILES, 100):  # so that both are at it
        for prefix in ("one/", "two/"):
            rig.store.slow(f"{prefix}m{number}.py", timedelta(milliseconds=5))

    synced(rig, eventually, p, q)

    for path in files:
        assert rig.store.reads[f"one/{path}"] + rig.store.reads[f"two/{path}"] == 1, path


def test_object_that_is_gone_is_told_by_name_and_holds_up_nothing_else(
    rig: Rig, eventually: Eventually
) -> None:
    p = take(rig, SMALL)
    rig.store.lose("data/v1/b.py")
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))

    eventually(lambda: lacks(syncer, p, ["b.py"]) and state_of(syncer, p) is ReleaseState.ABSENT)

    found = syncer.readiness().releases[p]
    assert found.missing[0].state is ReleaseState.ABSENT
    assert "data/v1/b.py" in found.reason
    assert len(local_packs(rig)) == 1
    rig.store.write("data/v1/b.py", SMALL["b.py"])
    eventually(lambda: syncer.readiness().is_ready(p))
    assert rig.store.reads["data/v1/a.py"] == 1


@pytest.mark.parametrize("data", [b"2", b"23", b"222", b""])
def test_object_with_other_bytes_is_never_installed_and_told_by_name(
    rig: Rig, eventually: Eventually, data: bytes
) -> None:
    p = take(rig, SMALL)
    rig.store.write("data/v1/b.py", data)
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))

    eventually(lambda: lacks(syncer, p, ["b.py"]) and state_of(syncer, p) is ReleaseState.CORRUPT)

    reason = syncer.readiness().releases[p].reason
    assert "b.py" in reason
    assert "data/v1/b.py" in reason
    with pytest.raises(ReleaseCorruptError, match=r"data/v1/b\.py"):
        syncer.ensure(p, SOON)


@pytest.mark.parametrize("path", ["large", "chunked"])
@pytest.mark.parametrize("cut", [0, 1])
def test_large_object_with_other_bytes_is_told_by_key_with_what_to_do(
    rig: Rig, eventually: Eventually, path: str, cut: int
) -> None:
    p = take(rig, FILES)
    rig.store.write(f"data/v1/{path}", bytes([7] * (len(FILES[path]) - cut)))
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))

    eventually(lambda: lacks(syncer, p, [path]) and state_of(syncer, p) is ReleaseState.CORRUPT)

    reason = syncer.readiness().releases[p].reason
    assert f"data/v1/{path}" in reason
    assert "adopt" in reason


def test_large_object_that_is_gone_is_absent(rig: Rig, eventually: Eventually) -> None:
    p = take(rig, FILES)
    rig.store.lose("data/v1/large")
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))

    eventually(lambda: lacks(syncer, p, ["large"]) and state_of(syncer, p) is ReleaseState.ABSENT)

    assert "data/v1/large" in syncer.readiness().releases[p].reason


def test_one_object_that_is_denied_leaves_the_others(rig: Rig, eventually: Eventually) -> None:
    p = take(rig, SMALL)
    rig.store.fail("data/v1/a.py", StoreAccessDeniedError("not this one"))
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))

    eventually(lambda: lacks(syncer, p, ["a.py"]))

    rig.store.heal("data/v1/a.py")
    eventually(lambda: syncer.readiness().is_ready(p))
    assert rig.store.reads["data/v1/b.py"] == 1


def test_outage_in_the_middle_keeps_what_came(rig: Rig, eventually: Eventually) -> None:
    p = take(rig, SMALL)
    rig.store.truncate("data/v1/c.py", 1)
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))
    eventually(lambda: lacks(syncer, p, ["c.py"]))
    assert state_of(syncer, p) is ReleaseState.UNAVAILABLE

    rig.store.heal("data/v1/c.py")

    eventually(lambda: syncer.readiness().is_ready(p))
    assert rig.store.reads["data/v1/a.py"] == 1


@pytest.mark.parametrize("prefix", [f"{'/'.join(['p' * 200] * 4)}/", "a/" * 62])
def test_layout_whose_keys_cannot_be_is_told_as_damaged(
    rig: Rig, eventually: Eventually, prefix: str
) -> None:
    p = take(rig, {f"{'q' * 150}/x/y": b"1"})
    layout = replace(fetch_layout(rig.store, "p", p.digest), loose=prefix)
    rig.store.write(keys.layout("p", p.digest), layout.encode())

    syncer = rig.syncer(p)

    eventually(lambda: state_of(syncer, p) is ReleaseState.CORRUPT)
    assert "key" in syncer.readiness().releases[p].reason


def test_release_adopted_again_elsewhere_is_fetched_from_there(rig: Rig, eventually: Eventually) -> None:
    p = take(rig, SMALL)
    rig.store.lose("data/v1/b.py")
    syncer = rig.syncer(p, look=timedelta(milliseconds=20))
    eventually(lambda: state_of(syncer, p) is ReleaseState.ABSENT)

    assert take(rig, SMALL, "data/v2/") == p

    eventually(lambda: syncer.readiness().is_ready(p))


def test_scrub_finds_a_flipped_byte_and_what_was_lost_is_fetched_anew(
    rig: Rig, eventually: Eventually
) -> None:
    p = take(rig, SMALL)
    syncer = rig.syncer(p, scrub=timedelta(milliseconds=50))
    eventually(lambda: syncer.readiness().is_ready(p))
    (pack,) = local_packs(rig)
    data = bytearray(pack.read_bytes())
    data[10] ^= 1
    pack.chmod(0o644)
    with pack.open("r+b") as file:
        file.write(data)

    eventually(lambda: syncer.readiness().quarantined_count == 1)

    eventually(lambda: syncer.readiness().is_ready(p))
    rig.stop()
    with LocalStore(rig.folder / "local") as local:
        kept = local.kept(p)
        assert kept is not None
        assert not local.verify(kept.manifest)


def test_verify_of_the_disk_names_what_was_in_a_damaged_pack(rig: Rig, eventually: Eventually) -> None:
    p = take(rig, SMALL)
    synced(rig, eventually, p)
    local_packs(rig)[0].unlink()

    with LocalStore(rig.folder / "local") as local:
        kept = local.kept(p)
        assert kept is not None
        lacking = local.verify(kept.manifest)

    assert {item.path for item in lacking.artifacts} == set(SMALL)


def test_local_collection_keeps_the_packs_of_a_wanted_loose_release(rig: Rig, eventually: Eventually) -> None:
    p, q = take(rig, SMALL, name="p"), take(rig, {"d.py": b"4444"}, "data/q/", "q")
    synced(rig, eventually, p, q)

    with LocalStore(rig.folder / "local") as local:
        for _ in range(2):
            gc(local, {p.digest}, grace=timedelta(0), max_share=1.0)
        kept = local.kept(p)
        assert kept is not None
        assert not local.lacks(kept.manifest, kept.layout)
        assert local.kept(q) is None
    assert len(local_packs(rig)) == 1


def test_collection_keeps_loose_releases_and_never_touches_their_objects() -> None:
    world = World()
    world.clock.now = datetime.now(UTC)
    for path, data in FILES.items():
        world.store.write(f"data/v1/{path}", data)
    world.store.write("data/old/x", b"9")
    old = adopt(world.store, name="p", prefix="data/old", retry=QUICK).manifest
    kept = adopt(world.store, name="p", prefix="data/v1", retry=QUICK)
    wanted = Sample(kept.manifest, kept.layout, {})
    world.clock.forward(timedelta(days=30))
    policy = replace(POLICY, keep_newest=0)

    first = world.collect(wanted, policy=policy)
    world.clock.forward(policy.grace)
    world.collect(wanted, policy=policy)

    assert first.missing == ()
    assert world.names() >= {"data/old/x", *(f"data/v1/{path}" for path in FILES)}
    assert keys.manifest("p", kept.digest) in world.names()
    assert keys.manifest("p", old.digest) not in world.names()
    assert not any(key.startswith("data/") for key in world.store.deletes)


def test_audit_of_a_loose_release_names_what_is_missing_and_damaged(rig: Rig) -> None:
    p = take(rig, FILES)
    assert Auditor(rig.store, retry=QUICK, deep=True).audit(p).flaws == ()
    rig.store.lose("data/v1/a.py")
    rig.store.write("data/v1/lib/b.py", b"333")
    rig.store.write("data/v1/large", b"y" * (PACKED_BYTES + 1))

    quick, deep = (Auditor(rig.store, retry=QUICK, deep=way).audit(p) for way in (False, True))

    assert quick.objects == len(FILES)
    assert quick.loose == "data/v1/"
    assert [(flaw.key, flaw.fault) for flaw in quick.flaws] == [
        ("data/v1/a.py", Fault.MISSING),
        ("data/v1/lib/b.py", Fault.DAMAGED),
    ]
    assert [flaw.key for flaw in deep.flaws] == ["data/v1/a.py", "data/v1/large", "data/v1/lib/b.py"]


def test_file_of_a_loose_release_is_read_out_of_the_bucket_verified(rig: Rig) -> None:
    p = take(rig, FILES)
    manifest, layout = fetch_manifest(rig.store, "p", p.digest), fetch_layout(rig.store, "p", p.digest)

    for path, data in FILES.items():
        assert b"".join(read_file(rig.store, manifest, layout, path)) == data
    rig.store.corrupt("data/v1/a.py")
    with pytest.raises(BlobSyncError, match=r"data/v1/a\.py"):
        list(read_file(rig.store, manifest, layout, "a.py"))


@pytest.mark.parametrize(
    "prefix", ["", "/", "/data/", "data//v1", "../data", "data/../x", "a\nb", "packs", "gc/runs", "leases/"]
)
def test_prefix_that_cannot_be_one_is_refused_before_anything_is_read(rig: Rig, prefix: str) -> None:
    rig.store.unavailable = True

    with pytest.raises(BlobSyncConfigError, match="prefix"):
        adopt(rig.store, name="p", prefix=prefix, retry=QUICK)


def test_prefix_without_objects_is_refused(rig: Rig) -> None:
    lay(rig, {"a": b"1"}, "data/v10/")

    with pytest.raises(BlobNotFoundError, match="data/v1/"):
        adopt(rig.store, name="p", prefix="data/v1", retry=QUICK)


def test_empty_objects_that_stand_for_folders_are_left_out(rig: Rig) -> None:
    lay(rig, SMALL)
    folders = [ObjectInfo(f"data/v1/{name}", 0, datetime(2026, 1, 1, tzinfo=UTC)) for name in ("", "lib/")]
    listed = rig.store.list
    rig.store.list = lambda prefix, after=None: iter([*folders, *listed(prefix, after)])  # type: ignore[method-assign]

    made = adopt(rig.store, name="p", prefix="data/v1", retry=QUICK, dry_run=True)

    assert [item.path for item in made.manifest.artifacts] == list(SMALL)


class _Hostile(MemoryObjectStore):
    """Lists keys that no store of ours would take."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        yield ObjectInfo(f"{prefix}{self._key}", 1, datetime(2026, 1, 1, tzinfo=UTC))
        yield ObjectInfo(f"{prefix}readme", 1, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "key",
    ["../x", "a/../../x", "/x", "a//b", "a\x00b", "a\\b", "README", "readme/x", ".env", "id_rsa", "x" * 300],
)
def test_object_that_cannot_be_a_file_is_refused_before_anything_is_read(key: str) -> None:
    store = _Hostile(key)

    with pytest.raises(UnsafeSourceError):
        adopt(store, name="p", prefix="data", retry=QUICK)

    assert not store.reads
    assert not store.writes


def test_secret_is_adopted_when_it_is_allowed(rig: Rig) -> None:
    lay(rig, {"conf/x.pem": b"1"})

    assert adopt(rig.store, name="p", prefix="data/v1", allow_secrets=["conf/*.pem"], retry=QUICK).digest


class _Changing(MemoryObjectStore):
    """Something happens to an object while it is adopted."""

    def __init__(self, happens: Callable[[MemoryObjectStore], None]) -> None:
        super().__init__()
        self._happens = happens

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        if key.startswith("data/"):
            self._happens(self)
        yield from super().read(key, start=start, size_bytes=size_bytes)


@pytest.mark.parametrize(
    "happens",
    [
        lambda store: store.lose("data/b"),
        lambda store: store.write("data/b", b"333"),
        lambda store: store.write("data/b", b"3"),
        lambda store: store.write("data/a", b"3"),
        lambda store: store.write("data/new", b"3"),
        lambda store: store.lose("data/large"),
        lambda store: store.write("data/large", b"3"),
    ],
)
def test_object_that_changes_meanwhile_ends_adopting_and_nothing_is_visible(
    happens: Callable[[MemoryObjectStore], None],
) -> None:
    store = _Changing(happens)
    for path, data in {"a": b"1", "b": b"22", "large": b"x" * (PACKED_BYTES + 1)}.items():
        store.write(f"data/{path}", data)

    with pytest.raises(SourceChangedError):
        adopt(store, name="p", prefix="data", retry=QUICK)

    assert not list(store.list("releases/"))
    assert not list(store.list("layouts/"))


class _Healing(MemoryObjectStore):
    """Its first answer for `data/b` breaks off."""

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        if self.reads["data/b"]:
            self.heal("data/b")
        return super().read(key, start=start, size_bytes=size_bytes)


def test_answer_that_breaks_off_while_adopting_is_asked_for_again() -> None:
    store = _Healing()
    store.write("data/a", b"1")
    store.write("data/b", b"22")
    store.truncate("data/b", 1)

    made = adopt(store, name="p", prefix="data", retry=QUICK)

    assert read_release(store, "p", made.digest) == {"a": b"1", "b": b"22"}
    assert store.reads["data/b"] > 1
