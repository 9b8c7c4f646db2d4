"""An error of the disk says what failed, for which file, and what to do, in whichever module it occurs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import LocalStore, LocalStoreError, RetryPolicy, collect, publish
from blobsync.local.disk_state import DiskCondition
from blobsync.publishing import hashing
from blobsync.release.pack import PackWriter
from blobsync.s3.connection import FileWriteError
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.local_store_samples import sample

ONCE = RetryPolicy(
    first_wait=timedelta(milliseconds=1),
    max_wait=timedelta(milliseconds=1),
    deadline=timedelta(milliseconds=1),
)
ADVICE = {
    28: (DiskCondition.FULL, "make room"),  # ENOSPC
    122: (DiskCondition.FULL, "make room"),  # EDQUOT
    30: (DiskCondition.READ_ONLY, "remount it"),  # EROFS
    13: (DiskCondition.DENIED, "give this user access"),  # EACCES
    5: (DiskCondition.FAILING, "dmesg"),  # EIO
}


def wrapped(error: OSError) -> LocalStoreError:
    """The error that an adapter of an object store raises. It does not name the condition of the disk."""
    broken = FileWriteError(str(error))
    broken.__cause__ = error
    told = LocalStoreError(f"blobs/abc cannot be written to its file: {error}")
    told.__cause__ = broken
    return told


@pytest.mark.parametrize("number", ADVICE)
def test_download_that_the_disk_refuses_is_told_with_what_to_do(tmp_path: Path, number: int) -> None:
    item = sample({"a": b"1" * 5000}).packs[0]
    condition, advised = ADVICE[number]
    error = OSError(number, os.strerror(number))
    with LocalStore(tmp_path) as local:
        incoming = local.receive(item)
        assert incoming is not None
        with pytest.raises(LocalStoreError) as caught, incoming:
            raise wrapped(error)

        told = str(caught.value)
        assert os.strerror(number) in told
        assert f"receiving {item.name}" in told
        assert advised in told
        assert told.count("It is tried again") == 1
        assert (local.disk_state().condition, local.disk_state().reason) == (condition, told)


def test_error_that_is_not_of_the_disk_is_left_as_it_is(tmp_path: Path) -> None:
    item = sample({"a": b"1" * 5000}).packs[0]
    with LocalStore(tmp_path) as local:
        incoming = local.receive(item)
        assert incoming is not None
        with pytest.raises(LocalStoreError, match=r"^other$"), incoming:
            raise LocalStoreError("other")
        assert local.disk_state().ok


@pytest.mark.parametrize("number", ADVICE)
@pytest.mark.parametrize("size_bytes", [100, 5 << 20], ids=["in a pack", "alone"])
def test_publish_without_room_for_its_files_says_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, size_bytes: int
) -> None:
    source, scratch = tmp_path / "src", tmp_path / "scratch"
    source.mkdir()
    scratch.mkdir()
    (source / "file").write_bytes(b"x" * size_bytes)

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.write", refuse)
    monkeypatch.setattr(hashing, "_clone", lambda *_: False)
    monkeypatch.setattr(PackWriter, "add", refuse)

    with pytest.raises(LocalStoreError) as caught:
        publish(
            MemoryObjectStore(), name="p", files=collect(source, include=["**"]), retry=ONCE, scratch=scratch
        )

    told = str(caught.value)
    assert os.strerror(number) in told
    assert str(scratch) in told
    assert ADVICE[number][1] in told
    assert "scratch" in told
