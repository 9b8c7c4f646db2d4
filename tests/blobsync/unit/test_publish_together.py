"""Two publishers at the same time: both releases are correct."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import PublishedRelease, RetryPolicy, collect, list_releases, publish
from blobsync.release.manifest import PACKED_BYTES
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.release_reader import read_release

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=5))


def _tree(root: Path, own: bytes) -> dict[str, bytes]:
    tree = {f"lib/{number}": bytes([number]) * 500 for number in range(30)}
    tree |= {"own": own, "large": b"\0" * (PACKED_BYTES + 1)}
    for name, data in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return tree


@pytest.mark.parametrize("same", [True, False], ids=["same files", "other files"])
def test_two_publishers_at_once_are_both_right(tmp_path: Path, same: bool) -> None:
    for turn in range(10):
        store, start = MemoryObjectStore(), threading.Barrier(2)

        def run(
            who: int, store: MemoryObjectStore = store, start: threading.Barrier = start, turn: int = turn
        ) -> tuple[PublishedRelease, dict[str, bytes]]:
            root = tmp_path / f"{turn}-{who}"
            tree = _tree(root, b"same" if same else os.urandom(1_000))
            files = collect(root, include=["**"])
            start.wait(60)
            return publish(store, name="p", files=files, retry=QUICK, published_by=f"p{who}"), tree

        with ThreadPoolExecutor(2) as pool:
            made = list(pool.map(run, range(2)))

        for release, tree in made:
            assert read_release(store, "p", release.digest) == tree
        digests = {release.digest for release, _ in made}
        assert len(digests) == (1 if same else 2)
        assert list_releases(store, "p") == sorted(digests)
        assert list(store.list("leases/")) == []
