"""Trouble with the index: a process that is killed while it compacts it, and a file that cannot be opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blobsync.errors import LocalStoreError
from blobsync.local.disk import FileIdentity
from blobsync.local.index import VerifiedIndex
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import fill, sample
from tests.forked import exit_code_of_child

ENOUGH_TO_BE_WRITTEN_ANEW = b"torn"


def test_index_killed_while_it_is_written_anew_leaves_no_file(tmp_path: Path) -> None:
    with LocalStore(tmp_path) as local:
        fill(local, sample({"a": b"1"}))
    with (tmp_path / "verified").open("ab") as index:
        index.write(ENOUGH_TO_BE_WRITTEN_ANEW)

    _killed_at_the_first_rename(tmp_path)

    with LocalStore(tmp_path):
        assert len(list((tmp_path / "sessions").iterdir())) == 1
        assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"LOCK", "verified"}


def _killed_at_the_first_rename(root: Path) -> None:
    def opened() -> int:
        Path.replace = lambda *_: os._exit(9)  # type: ignore[assignment, method-assign]
        LocalStore(root)
        return 0

    if exit_code_of_child(opened) != 9:
        pytest.fail("the index was not written again")


def test_index_that_cannot_be_opened_again_writes_to_no_other_file(tmp_path: Path) -> None:
    index = VerifiedIndex(tmp_path / "verified", tmp_path / "part")
    (tmp_path / "verified").unlink()
    (tmp_path / "verified").mkdir()  # somebody has damaged the store
    index.verified("packs/aa/1", FileIdentity(1, 2, 3), "1")

    with (tmp_path / "other").open("w+b", buffering=0) as other:  # may get the number of a closed descriptor
        index.verified("packs/aa/2", FileIdentity(4, 5, 6), "2")
        index.close()

        assert other.read() == b""
        other.write(b"still open")
    assert index.digest("packs/aa/2", FileIdentity(4, 5, 6)) == "2"


def test_store_that_cannot_be_opened_leaves_no_session(tmp_path: Path) -> None:
    (tmp_path / "verified").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(LocalStoreError):
        LocalStore(tmp_path)

    assert list((tmp_path / "sessions").iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before
