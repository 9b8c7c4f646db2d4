"""Files that the disk cannot read: they go to quarantine where they are met, and are fetched again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from blobsync.errors import BlobMissingError, LocalStoreError
from blobsync.local.gc import gc
from blobsync.local.store import LocalStore
from blobsync.release.layout import StoredObject
from blobsync.release.manifest import Blob
from tests.blobsync.local_store_samples import (
    Sample,
    bring,
    contents,
    fill,
    leftover,
    make_unreadable,
    sample,
)
from tests.blobsync.sync_samples import NEVER, SOON, Rig

Eventually = Callable[..., None]
LARGE = bytes(range(256)) * (20 << 10)
CHUNKED = b"".join(bytes([number]) * (1 << 20) for number in range(33))


def quarantined(local: LocalStore) -> list[str]:
    return [path.name.rpartition(".")[0] for path in (local.root / "quarantine").iterdir()]


def the_object(release: Sample, *, large: bool) -> StoredObject:
    (found,) = (item for item in release.objects if isinstance(item, Blob) is large)
    return found


@pytest.mark.parametrize("large", [False, True])
def test_tree_of_an_unreadable_object_names_the_disk_and_the_object_is_missing_from_now_on(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    release = fill(local, sample({"a": b"1" * 5000, "tool": LARGE}, executable={"tool"}))
    item = the_object(release, large=large)
    with monkeypatch.context() as bad_sector:
        make_unreadable(bad_sector, local._objects.path(item))

        with pytest.raises(BlobMissingError, match=r"cannot be read.*Input/output error.*quarantine"):
            local.materialise(release.manifest.ref)

    assert quarantined(local) == [item.name]
    assert local.missing(release.known).objects == (item,)
    bring(local, item, release.objects[item])
    assert contents(local.materialise(release.manifest.ref)) == dict(release.files)


@pytest.mark.parametrize("error", [errno.EIO, errno.EUCLEAN, errno.EBADMSG])
@pytest.mark.parametrize("large", [False, True])
def test_file_of_an_unreadable_object_is_missing_from_now_on(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, large: bool, error: int
) -> None:
    release = fill(local, sample({"a": b"1" * 5000, "tool": LARGE}))
    item = the_object(release, large=large)
    make_unreadable(monkeypatch, local._objects.path(item), error)

    with pytest.raises(BlobMissingError, match="cannot be read"):
        b"".join(local.read(release.manifest.ref, "tool" if large else "a"))

    assert quarantined(local) == [item.name]
    assert local.missing(release.known).objects == (item,)
    assert local.disk_state().ok


def test_look_that_cannot_read_a_table_finds_its_pack_missing(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = fill(local, sample({"a": b"1"}))
    make_unreadable(monkeypatch, local._objects.path(release.packs[0]))

    assert local.missing(release.known).objects == tuple(release.packs)
    assert quarantined(local) == [release.packs[0].name]


def test_ensure_fetches_an_unreadable_pack_again_without_a_scrub(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = rig.publish("p", a="some data", b="other data")
    syncer = rig.syncer(p, scrub=NEVER, look=NEVER)
    eventually(lambda: syncer.readiness().is_ready(p))
    make_unreadable(monkeypatch, rig.path(p, "a"))

    assert contents(syncer.ensure(p, SOON)) == {"a": b"some data", "b": b"other data"}
    assert syncer.readiness().disk.ok


def test_unreadable_part_of_a_large_file_is_dropped_and_fetched_again(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = sample({"a": CHUNKED})
    (item,) = release.objects
    partial = leftover(local, item, CHUNKED[: 20 << 20], reserved=False)
    with partial.open("rb"):  # so that no other file gets its inode
        make_unreadable(monkeypatch, partial)

        with pytest.raises(LocalStoreError, match="Input/output error"):
            bring(local, item, CHUNKED)

        bring(local, item, CHUNKED)
    assert local.has(item)


def test_store_whose_index_cannot_be_read_opens_and_hashes_its_files_again(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = fill(local, sample({"a": b"1"}))
    make_unreadable(monkeypatch, local.root / "verified")

    with LocalStore(local.root) as again:
        assert not again.missing(release.known)
        assert quarantined(again) == []
    with LocalStore(local.root) as third:  # its index is a new file
        assert third.context.index.digest(
            third.context.place(third._objects.path(release.packs[0])),
            third._objects.file_identity(release.packs[0]),  # type: ignore[arg-type]
        )


def test_collection_whose_marks_cannot_be_read_begins_the_grace_again(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = fill(local, sample({"a": b"1"})), fill(local, sample({"b": b"2"}, name="q"))
    keep = {kept.manifest.digest}
    gc(local, keep, grace=timedelta(0), max_share=1.0)
    real = Path.read_bytes

    def read(path: Path) -> bytes:
        if path.name == "gc.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    with monkeypatch.context() as bad_sector:
        bad_sector.setattr(Path, "read_bytes", read)
        assert gc(local, keep, grace=timedelta(0), max_share=1.0).removed == ()

    removed = gc(local, keep, grace=timedelta(0), max_share=1.0).removed
    assert any(gone.packs[0].name in place for place in removed)


def test_tree_loses_no_file_because_the_scrub_may_open_no_more_files(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = fill(local, sample({"a": b"1", "b": b"2"}))
    tree = local.materialise(release.manifest.ref)
    real = os.open

    def refuse(path: Any, *args: Any, **named: Any) -> int:
        if str(path).startswith(str(tree)):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *args, **named)

    with monkeypatch.context() as exhausted:
        exhausted.setattr(os, "open", refuse)
        with pytest.raises(LocalStoreError, match="Too many open files"):
            local.scrub_tree(release.manifest)

    assert contents(tree) == dict(release.files)
    assert quarantined(local) == []
