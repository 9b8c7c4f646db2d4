"""What the command line says while the disk refuses files or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from blobsync.cli import syncing
from blobsync.cli.main import BlobsyncExit, main
from blobsync.cli.options import Setting
from blobsync.local import disk_state
from blobsync.local.store import LocalStore
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.local_store_samples import sample
from tests.blobsync.sync_samples import put


def use_in_place_of_the_bucket(patch: pytest.MonkeyPatch, store: MemoryObjectStore) -> None:
    @contextmanager
    def bucket(_setting: Setting) -> Iterator[MemoryObjectStore]:
        yield store

    patch.setattr(Setting, "bucket", bucket)


def test_sync_says_at_once_that_the_disk_is_full_and_gives_up_with_the_code_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryObjectStore()
    ref = put(store, sample({"a": b"1" * 1000, "b": b"2" * 1000}, members=1))
    monkeypatch.setattr(disk_state, "free_bytes", lambda _path: 0)

    use_in_place_of_the_bucket(monkeypatch, store)

    done = CliRunner().invoke(
        main, ["sync", f"{ref.name}@{ref.digest}", "--store", str(tmp_path / "store"), "--within", "1"]
    )

    assert done.exit_code == BlobsyncExit.DISK
    assert done.stderr.count("make room") == 1


def test_sync_gives_up_in_time_although_the_store_is_held_by_a_stopped_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, goes_on = MemoryObjectStore(), threading.Event()
    ref = put(store, sample({"a": b"1" * 1000}))
    use_in_place_of_the_bucket(monkeypatch, store)
    monkeypatch.setattr(LocalStore, "hold", lambda *_args: goes_on.wait(200))
    monkeypatch.setattr(syncing, "_CLOSE", timedelta(0))

    began_s = time.monotonic()
    timer = threading.Timer(100, goes_on.set)
    timer.start()
    try:
        done = CliRunner().invoke(
            main, ["sync", f"{ref.name}@{ref.digest}", "--store", str(tmp_path / "store"), "--within", "1"]
        )
    finally:
        timer.cancel()
        goes_on.set()

    assert time.monotonic() - began_s < 60
    assert done.exit_code == BlobsyncExit.PROBLEM
    assert "stopped process" in done.stdout
