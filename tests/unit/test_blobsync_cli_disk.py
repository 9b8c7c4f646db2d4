"""What the command line says while the disk refuses files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from blobsync.cli.main import Exit, main
from blobsync.cli.options import Setting
from blobsync.local import disk_state
from blobsync.testing.memory import MemoryObjectStore
from tests.local_store_samples import sample
from tests.sync_samples import put


def test_sync_says_at_once_that_the_disk_is_full_and_gives_up_with_the_code_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryObjectStore()
    ref = put(store, sample({"a": b"1" * 1000, "b": b"2" * 1000}, members=1))
    monkeypatch.setattr(disk_state, "free_bytes", lambda _path: 0)

    @contextmanager
    def bucket(_setting: Setting) -> Iterator[MemoryObjectStore]:
        yield store

    monkeypatch.setattr(Setting, "bucket", bucket)

    done = CliRunner().invoke(
        main, ["sync", f"{ref.name}@{ref.digest}", "--store", str(tmp_path / "store"), "--within", "1"]
    )

    assert done.exit_code == Exit.DISK
    assert done.stderr.count("make room") == 1
