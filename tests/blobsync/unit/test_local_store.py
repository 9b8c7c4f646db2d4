"""The local store: unverified bytes never count, whatever changes at any time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blobsync.bucket import verification
from blobsync.bucket.verification import verify_chunk
from blobsync.errors import (
    BlobMissingError,
    CorruptBlobError,
    CorruptPackError,
    InvalidLayoutError,
    InvalidManifestError,
    InvalidPackError,
    LocalStoreError,
    ReleaseAbsentError,
)
from blobsync.local import disk, store_context
from blobsync.local.disk import make_folder, remove_tree
from blobsync.local.objects import ObjectFiles
from blobsync.local.releases import Release
from blobsync.local.store import Digests, LocalStore
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import CHUNK_BYTES, Artifact, Blob, Manifest, Role
from tests.blobsync.local_store_samples import (
    Sample,
    artifact,
    bring,
    contents,
    fill,
    flip_a_byte_unseen,
    overwrite,
    packed,
    sample,
    sha,
    visible,
)

LARGE = bytes(range(256)) * (20 << 10)  # 5 MiB: a separate object, without chunks
CHUNKED = b"".join(bytes([number]) * (1 << 20) for number in range(33))  # three chunks, the last of 1 MiB


def mixed() -> Sample:
    return sample(
        {
            "run.sh": b"#!",
            "lib/a.py": b"1",
            "lib/deep/b.py": b"2" * 3000,
            "same.txt": b"#!",
            "twin.sh": b"#!",
            "empty": b"",
            "data/large": LARGE,
            "data/tool": LARGE,
            "data/chunked": CHUNKED,
        },
        executable={"run.sh", "twin.sh", "data/tool"},
        members=2,
    )


def test_received_objects_are_there_read_only_and_count_after_reopening(tmp_path: Path) -> None:
    release = mixed()
    with LocalStore(tmp_path) as local:
        assert not any(local.has(item) for item in release.objects)
        fill(local, release)
        for item, data in release.objects.items():
            assert local.has(item)
            assert local._objects.path(item).read_bytes() == data
            assert stat.S_IMODE(local._objects.path(item).stat().st_mode) == 0o444
        assert list((tmp_path / "partial").iterdir()) == []
    with LocalStore(tmp_path) as again:
        assert all(again.has(item) for item in release.objects)
        assert not again.missing(release.known)
        kept = again.kept(release.manifest.ref)
        assert kept is not None
        assert (kept.manifest, kept.layout) == (release.manifest, release.layout)
        assert again.releases() == [release.manifest.ref]


def test_reopened_store_trusts_its_index_and_reads_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = mixed()
    with LocalStore(tmp_path) as local:
        fill(local, release)

    def refuse(*_args: object, **_named: object) -> None:
        raise AssertionError("an object was hashed")

    monkeypatch.setattr("blobsync.bucket.verification.hash_range", refuse)
    with LocalStore(tmp_path) as again:
        assert not again.missing(release.known)


@pytest.mark.parametrize("data", [b"x" * len(LARGE), LARGE[:-1]], ids=["other", "short"])
def test_wrong_bytes_of_a_blob_are_never_installed(local: LocalStore, data: bytes) -> None:
    blob = artifact("a", LARGE).blob

    with pytest.raises(CorruptBlobError):
        bring(local, blob, data)

    assert not local.has(blob)
    assert visible(local.root) == []
    assert list((local.root / "partial").iterdir()) == []


def test_flipped_byte_anywhere_in_a_pack_is_refused(local: LocalStore) -> None:
    ((pack, data),) = packed([b"one" * 100, b"two" * 200]).items()
    for at in range(0, len(data), 7):
        bad = bytearray(data)
        bad[at] ^= 1
        with pytest.raises(CorruptPackError):
            bring(local, pack, bytes(bad))
    assert visible(local.root) == []

    bring(local, pack, data)
    assert local.has(pack)


def test_pack_whose_member_is_not_what_its_table_says_is_refused_though_it_hashes_to_its_name(
    local: LocalStore,
) -> None:
    ((_, data),) = packed([b"good bytes", b"x"], compress=False).items()
    forged = data.replace(b"good bytes", b"evil bytes")
    from blake3 import blake3

    from blobsync.release.layout import Pack

    pack = Pack(blake3(forged).hexdigest(), len(forged))
    with pytest.raises(CorruptPackError, match="member"):
        bring(local, pack, forged)
    assert not local.has(pack)


def test_large_pack_is_hashed_on_two_threads_and_a_bad_member_in_any_frame_is_found(
    local: LocalStore,
) -> None:
    from blake3 import blake3

    from blobsync.release.layout import Pack

    blobs = [number.to_bytes(4) * (1 << 18) for number in range(12)]  # 12 MiB in three frames
    ((_, data),) = packed(blobs, compress=False).items()
    for at in (100, len(data) // 2, len(data) - 2000):
        bad = bytearray(data)
        bad[at] ^= 1
        pack = Pack(blake3(bad).hexdigest(), len(bad))
        with pytest.raises(CorruptPackError, match="member"):
            bring(local, pack, bytes(bad))
    ((good, _),) = packed(blobs, compress=False).items()
    bring(local, good, data)
    assert local.has(good)


def test_chunk_with_wrong_bytes_is_missing_still_and_the_others_are_kept(local: LocalStore) -> None:
    blob = artifact("a", CHUNKED).blob
    with local.receive(blob) or pytest.fail("busy") as incoming:
        assert incoming.missing() == [
            (0, CHUNK_BYTES),
            (CHUNK_BYTES, CHUNK_BYTES),
            (2 * CHUNK_BYTES, 1 << 20),
        ]
        os.pwrite(incoming.fd, CHUNKED[2 * CHUNK_BYTES :], 2 * CHUNK_BYTES)
        incoming.took(2 * CHUNK_BYTES, 1 << 20)
        os.pwrite(incoming.fd, b"\1" * CHUNK_BYTES, 0)
        with pytest.raises(CorruptBlobError):
            incoming.took(0, CHUNK_BYTES)
        assert incoming.missing() == [(0, CHUNK_BYTES), (CHUNK_BYTES, CHUNK_BYTES)]

    with local.receive(blob) or pytest.fail("busy") as resumed:  # from the partial file alone
        assert resumed.missing() == [(0, CHUNK_BYTES), (CHUNK_BYTES, CHUNK_BYTES)]
    bring(local, blob, CHUNKED)
    assert local._objects.path(blob).read_bytes() == CHUNKED


def test_install_of_a_blob_with_a_chunk_nobody_fetched_is_refused(local: LocalStore) -> None:
    blob = artifact("a", CHUNKED).blob
    with local.receive(blob) or pytest.fail("busy") as incoming:
        os.pwrite(incoming.fd, CHUNKED[2 * CHUNK_BYTES :], 2 * CHUNK_BYTES)
        incoming.took(2 * CHUNK_BYTES, 1 << 20)
        with pytest.raises(CorruptBlobError):
            incoming.install()
    assert visible(local.root) == []


def test_unfinished_pack_is_resumed_where_it_ended(local: LocalStore) -> None:
    ((pack, data),) = packed([b"some bytes" * 1000], compress=False).items()
    with local.receive(pack) or pytest.fail("busy") as incoming:
        os.pwrite(incoming.fd, data[:4000], 0)

    with local.receive(pack) or pytest.fail("busy") as resumed:
        assert resumed.missing() == [(4000, len(data) - 4000)]
        os.pwrite(resumed.fd, data[4000:], 4000)
        assert resumed.missing() == []
        resumed.install()
    assert local.has(pack)


def test_partial_file_with_foreign_bytes_costs_a_new_download_and_no_more(local: LocalStore) -> None:
    ((pack, data),) = packed([b"some bytes" * 1000], compress=False).items()
    (local.root / "partial" / pack.name).write_bytes(b"x" * 100)
    with pytest.raises(CorruptPackError):
        bring(local, pack, data)
    (local.root / "partial" / pack.name).write_bytes(b"x" * 1_000_000)  # longer than the pack
    bring(local, pack, data)
    assert local.has(pack)


def test_one_receiver_of_an_object_at_a_time_and_none_once_it_is_here(local: LocalStore) -> None:
    ((pack, data),) = packed([b"some bytes"]).items()
    with LocalStore(local.root) as neighbour:
        with local.receive(pack) or pytest.fail("busy") as incoming:
            assert neighbour.receive(pack) is None
            assert local.receive(pack) is None
            os.pwrite(incoming.fd, data, 0)
            incoming.install()
        assert neighbour.receive(pack) is None
        assert neighbour.has(pack)
        assert list((local.root / "partial").iterdir()) == []


def test_name_of_a_chunked_blob_does_not_vouch_for_its_sha256_where_that_is_asked_for(tmp_path: Path) -> None:
    true = artifact("a", CHUNKED).blob
    lie = Blob(sha(b"other"), true.size_bytes, true.chunks)
    with LocalStore(tmp_path / "chunks") as local:
        bring(local, lie, CHUNKED)  # the same object: its name comes from its chunks, not from a SHA-256
        assert local.has(true)
        assert local.has(lie)
    with LocalStore(tmp_path / "chunks", verify="sha256") as later:
        assert later.has(true)  # after hashing it again


@pytest.mark.parametrize("here", ["before", "by the lie", "not hashed so"])
def test_manifest_that_pairs_a_blob_with_a_wrong_sha256_harms_no_other_release(
    tmp_path: Path, here: str
) -> None:
    good = sample({"a": CHUNKED})
    true = next(iter(good.objects))
    assert isinstance(true, Blob)
    item = Artifact("a", true.size_bytes, sha(b"other"), Role.CODE, False, true.chunks)
    lie = Manifest("liar", (item,))
    assert item.blob.name == true.name

    with LocalStore(tmp_path, verify="name" if here == "not hashed so" else "sha256") as local:
        bring(local, item.blob if here == "by the lie" else true, CHUNKED)
    with LocalStore(tmp_path, verify="sha256") as local:
        for _ in range(2):
            with pytest.raises(InvalidManifestError, match=r"SHA-256 .* Publish its release again"):
                local.missing(Release(lie, good.layout))
            assert not local.missing(good.known)
        with pytest.raises(InvalidManifestError):
            local.keep(Release(lie, good.layout))
        local.keep(good.known)
        assert contents(local.materialise(good.manifest.ref)) == {"a": CHUNKED}
        assert list((tmp_path / "quarantine").iterdir()) == []


def test_release_kept_by_chunks_alone_is_not_read_under_a_wrong_sha256(tmp_path: Path) -> None:
    true = artifact("a", CHUNKED).blob
    item = Artifact("a", true.size_bytes, sha(b"other"), Role.CODE, False, true.chunks)
    lie, layout = Manifest("liar", (item,)), sample({"a": CHUNKED}).layout
    with LocalStore(tmp_path) as local:
        bring(local, true, CHUNKED)
        local.keep(Release(lie, layout))  # its chunks are correct, and this store does not check SHA-256
    with LocalStore(tmp_path, verify="sha256") as strict:
        with pytest.raises(InvalidManifestError):
            b"".join(strict.read(lie.ref, "a"))
        with pytest.raises(InvalidManifestError):
            strict.materialise(lie.ref)
        kept = strict.kept(lie.ref)
        assert kept is not None
        with pytest.raises(InvalidManifestError):
            strict.missing(kept)


def test_both_digests_are_computed_once_each_in_whatever_order_chunks_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = CHUNKED + CHUNKED + CHUNKED
    item = artifact("a", data).blob
    hashed: list[int] = []
    real = verify_chunk

    def counted(fd: int, blob: Blob, number: int, *more: object) -> None:
        hashed.append(number)
        real(fd, blob, number, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("blobsync.local.incoming.verify_chunk", counted)
    with LocalStore(tmp_path, verify="sha256") as local:
        incoming = local.receive(item)
        assert incoming is not None
        with incoming:
            ranges = incoming.missing()
            for start, size in [ranges[1], ranges[0], *ranges[2:]]:
                os.pwrite(incoming.fd, data[start : start + size], start)
                incoming.took(start, size)
            incoming.install()
        assert sorted(hashed) == list(range(len(ranges)))
        assert local.has(item)


def test_lacking_names_objects_and_the_files_that_need_them(local: LocalStore) -> None:
    release = sample({"a": b"1", "b": b"2", "c": LARGE}, members=1)
    lacking = local.missing(release.known)
    assert set(lacking.objects) == set(release.objects)
    assert [item.path for item in lacking.artifacts] == ["a", "b", "c"]

    first = next(pack for pack, data in release.objects.items() if data == packed_alone(release, b"1"))
    bring(local, first, release.objects[first])
    lacking = local.missing(release.known)
    assert first not in lacking.objects
    assert [item.path for item in lacking.artifacts] == ["b", "c"]

    for item, data in release.objects.items():
        bring(local, item, data)
    assert not local.missing(release.known)
    local._objects.path(first).unlink()
    assert local.missing(release.known).objects == (first,)


def packed_alone(release: Sample, blob: bytes) -> bytes:
    ((_, data),) = packed([blob]).items()
    return data


def test_layout_whose_packs_lack_a_file_is_refused(local: LocalStore) -> None:
    release, other = sample({"a": b"1", "b": b"2"}), sample({"a": b"1"})
    for item, data in other.objects.items():
        bring(local, item, data)

    with pytest.raises(InvalidLayoutError, match="no pack in the layout"):
        local.missing(Release(release.manifest, other.layout))


def test_incomplete_release_is_neither_kept_nor_materialised(local: LocalStore) -> None:
    release = sample({"a": b"1", "b": LARGE})
    assert len(local.keep(release.known).artifacts) == 2
    assert local.kept(release.manifest.ref) is None
    with pytest.raises(BlobMissingError, match="not kept"):
        local.materialise(release.manifest.ref)

    fill(local, release)
    local._objects.path(release.packs[0]).unlink()
    with pytest.raises(BlobMissingError, match="lacks 1 of 2"):
        local.materialise(release.manifest.ref)


def test_overwritten_objects_do_not_count_and_go_to_quarantine(local: LocalStore) -> None:
    release = fill(local, mixed())
    for item in release.objects:
        overwrite(local._objects.path(item), b"evil")
        assert not local.has(item)
    assert set(local.missing(release.known).objects) == set(release.objects)
    assert {path.read_bytes() for path in (local.root / "quarantine").iterdir()} == {b"evil"}


@pytest.mark.parametrize("changed", ["size", "time", "inode"])
def test_object_of_which_only_the_size_time_or_inode_changed_is_hashed_before_it_counts(
    local: LocalStore, tmp_path: Path, changed: str
) -> None:
    (blob,) = fill(local, sample({"a": LARGE})).objects
    path = local._objects.path(blob)
    before = path.stat()
    evil = b"evil" + LARGE[4:] + (b"!" if changed == "size" else b"")
    if changed == "inode":
        path.rename(tmp_path / "old")  # so that its inode is not used again
    else:
        path.chmod(0o644)
    path.write_bytes(evil)
    mtime_ns = before.st_mtime_ns + (changed == "time")
    os.utime(path, ns=(before.st_atime_ns, mtime_ns))

    assert not local.has(blob)

    assert [found.read_bytes() for found in (local.root / "quarantine").iterdir()] == [evil]


def test_touched_object_counts_again_after_it_was_hashed(local: LocalStore) -> None:
    release = fill(local, mixed())
    for item in release.objects:
        os.utime(local._objects.path(item), ns=(1, 1))
    assert not local.missing(release.known)


def test_object_replaced_by_a_link_does_not_count_until_fetched_anew(
    local: LocalStore, tmp_path: Path
) -> None:
    release = fill(local, sample({"a": b"data"}))
    (pack,) = release.packs
    (tmp_path / "elsewhere").write_bytes(release.objects[pack])
    local._objects.path(pack).unlink()
    local._objects.path(pack).symlink_to(tmp_path / "elsewhere")

    assert not local.has(pack)
    bring(local, pack, release.objects[pack])
    assert local.has(pack)
    assert not local._objects.path(pack).is_symlink()


def test_object_on_a_bad_sector_goes_to_quarantine(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = fill(local, sample({"a": b"data", "b": LARGE}))

    def unreadable(*_args: object, **_named: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(verification, "hash_range", unreadable)
        assert {item.path for item in local.verify(release.manifest.ref).artifacts} == {"a", "b"}
    assert len(list((local.root / "quarantine").iterdir())) == 2


def test_quarantine_keeps_the_newest_few(local: LocalStore) -> None:
    ((pack, data),) = packed([b"some bytes"]).items()
    for number in range(25):
        bring(local, pack, data)
        overwrite(local._objects.path(pack), b"evil %d" % number)
        assert not local.has(pack)
    found = {path.read_bytes() for path in (local.root / "quarantine").iterdir()}
    assert found == {b"evil %d" % number for number in range(5, 25)}


def test_damaged_records_of_a_release_are_put_away_and_written_again(local: LocalStore) -> None:
    release = fill(local, sample({"a": b"1"}))
    for suffix in (".json", ".layout"):
        overwrite(local.root / "releases" / "p" / f"{release.manifest.digest}{suffix}", b"{}")
        assert local.kept(release.manifest.ref) is None
        assert local.releases() == []
        local.keep(release.known)
        assert local.kept(release.manifest.ref) is not None


def test_newer_layout_replaces_the_old(local: LocalStore) -> None:
    release = fill(local, sample({"a": b"1", "b": b"2"}, members=1))
    repacked = sample({"a": b"1", "b": b"2"})
    for item, data in repacked.objects.items():
        bring(local, item, data)
    layout = Layout(repacked.layout.packs, "another", datetime(2026, 2, 1, tzinfo=UTC))

    local.keep(Release(release.manifest, layout))

    kept = local.kept(release.manifest.ref)
    assert kept is not None
    assert kept.layout == layout


def test_files_are_read_without_a_tree(local: LocalStore) -> None:
    release = fill(local, mixed())
    for path, data in release.files.items():
        assert b"".join(local.read(release.manifest.ref, path)) == data
    with pytest.raises(ReleaseAbsentError, match="no file"):
        next(local.read(release.manifest.ref, "elsewhere"))
    with pytest.raises(BlobMissingError):
        next(local.read(sample({"x": b"1"}).manifest.ref, "x"))


def test_disk_that_refuses_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(LocalStoreError, match="the files that were there are unchanged"):
        LocalStore(tmp_path / "file" / "store")


def test_what_another_process_verified_is_not_hashed_again(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = mixed()
    with LocalStore(local.root) as neighbour:
        fill(neighbour, release)
    hashed: list[object] = []
    monkeypatch.setattr("blobsync.bucket.verification.hash_range", lambda *args, **named: hashed.append(args))

    assert not local.missing(release.known)
    assert hashed == []


def test_step_names_are_told_in_the_order_of_an_install(tmp_path: Path) -> None:
    steps: list[str] = []
    with LocalStore(tmp_path, on_step=steps.append) as local:
        ((pack, data),) = packed([b"some bytes"]).items()
        bring(local, pack, data)
    assert steps == ["receive-open", "receive-reserve", "verify", "fsync", "rename", "fsync-folder", "index"]


@pytest.mark.parametrize("damage", [b"", b"garbage", "delete", "lie"])
def test_store_without_its_index_verifies_again(tmp_path: Path, damage: bytes | str) -> None:
    release = sample({"a": b"good", "b": LARGE})
    with LocalStore(tmp_path) as local:
        fill(local, release)
        pack, blob = local._objects.path(release.packs[0]), local._objects.path(artifact("b", LARGE).blob)
    index = tmp_path / "verified"
    if isinstance(damage, bytes):
        index.write_bytes(damage)
    elif damage == "delete":
        index.unlink()
    else:  # lines that name other objects, so their check sums are wrong
        index.write_bytes(index.read_bytes().replace(pack.name.encode(), blob.name.encode()))
    flip_a_byte_unseen(pack)

    with LocalStore(tmp_path) as again:
        assert again.missing(release.known).objects == (release.packs[0],)
        assert again.has(artifact("b", LARGE).blob)


def test_index_stays_small_when_files_are_verified_again_and_again(tmp_path: Path) -> None:
    release = sample({"a": b"data"})
    with LocalStore(tmp_path) as local:
        fill(local, release)
        for _ in range(2000):
            local.verify(release.manifest.ref)
        before = (tmp_path / "verified").stat().st_size
    with LocalStore(tmp_path) as again:
        assert (tmp_path / "verified").stat().st_size < before / 100
        assert again.has(release.packs[0])


def test_file_that_got_its_name_between_opening_and_locking_is_not_written_to(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((pack, data),) = packed([b"some bytes"]).items()
    flock = fcntl.flock
    with LocalStore(local.root) as neighbour, monkeypatch.context() as patch:
        first = neighbour.receive(pack) or pytest.fail("busy")

        def late(fd: int, how: int) -> None:
            patch.setattr(fcntl, "flock", flock)
            with first:
                os.pwrite(first.fd, data, 0)
                first.install()
            flock(fd, how)

        patch.setattr(fcntl, "flock", late)
        patch.setattr(ObjectFiles, "has", lambda _self, _item: False)
        assert local.receive(pack) is None
    assert local._objects.path(pack).read_bytes() == data


@pytest.mark.parametrize(("digests", "again"), [("name", []), ("sha256", ["members"])])
def test_members_are_hashed_once_and_then_the_pack_as_a_whole_unless_sha256_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digests: Digests, again: list[str]
) -> None:
    release = mixed()
    pack = next(item for item in release.objects if isinstance(item, Pack))
    with LocalStore(tmp_path / "store", verify=digests) as local:
        fill(local, release)
        hashed: list[str] = []
        monkeypatch.setattr(verification, "_verify_members", lambda *_args: hashed.append("members"))

        assert local.scrub_object(pack)
        assert hashed == again

        (tmp_path / "store" / "verified").unlink()  # the store does not know any verified object now
    with LocalStore(tmp_path / "store", verify=digests) as fresh:
        hashed.clear()
        assert fresh.has(pack)
        assert hashed == ["members"]


def test_object_that_is_fetched_again_while_the_damaged_one_is_hashed_stays(local: LocalStore) -> None:
    release = fill(local, sample({"a": b"data"}))
    (pack,) = release.packs
    flip_a_byte_unseen(local._objects.path(pack))

    def heal(_size_bytes: int) -> None:
        """Another process finds the damage first, and fetches the object again."""
        if not healed:
            healed.append(True)
            with LocalStore(local.root) as other:
                assert not other.scrub_object(pack)
                bring(other, pack, release.objects[pack])

    healed: list[bool] = []
    assert not local.scrub_object(pack, on_progress=heal)

    assert local.has(pack)
    assert len(list((local.root / "quarantine").iterdir())) == 1


def test_lock_of_a_stopped_process_ends_the_wait_with_an_error_that_says_so(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LOCKED_AT_MOST_S", 0.1)
    with (local.root / "LOCK").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for call in (lambda: LocalStore(local.root), lambda: local.hold({"a"})):
            with pytest.raises(LocalStoreError, match=r"stopped, hangs.*fuser"):
                call()
        assert local.disk_state().ok

    local.hold({"a"})
    LocalStore(local.root).close()


def test_store_opens_though_another_process_closes_it_at_that_moment(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = local.root / "sessions" / "closing"
    closing.mkdir()

    def make(path: Path) -> None:
        remove_tree(closing)
        make_folder(path)

    monkeypatch.setattr(store_context, "make_folder", make)
    LocalStore(local.root).close()

    assert not closing.exists()


@pytest.mark.parametrize("at", [20, -2])  # in a member, and in the tables
def test_reading_from_a_damaged_pack_puts_it_into_quarantine_and_no_other(local: LocalStore, at: int) -> None:
    release = fill(local, sample({"a": os.urandom(5000), "b": os.urandom(5000)}, members=1))
    damaged = next(pack for pack in release.packs if release.files["a"] in release.objects[pack])
    place = local._objects.path(damaged)
    flip_a_byte_unseen(place, place.stat().st_size * (at < 0) + at)

    with pytest.raises((CorruptPackError, InvalidPackError)):
        b"".join(local.read(release.manifest.ref, "a"))

    assert local.missing(release.known).objects == (damaged,)
    assert len(list((local.root / "quarantine").iterdir())) == 1
