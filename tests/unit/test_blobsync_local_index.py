"""A process that is killed while it compacts the index leaves no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blobsync.local.store import LocalStore
from tests.forked import exit_code_of_child
from tests.local_store_samples import fill, sample

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
