"""Publishing to a real server: kills at any moment, and limits of memory and of bytes.

NIMBUS_PUBLISH_KILLS: number of kills.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blobsync import S3ObjectStore, collect, list_releases, publish
from blobsync.bucket import keys
from blobsync.bucket.leases import live_leases
from blobsync.bucket.releases import published
from blobsync.testing.memory import MemoryObjectStore
from nimbus.localstack.s3 import S3Server
from tests.blobsync.release_reader import read_release
from tests.report import number_from

KILLS = number_from("NIMBUS_PUBLISH_KILLS", 3)
MAX_MIB = 64
MIB = 1 << 20
CHILD = Path(__file__).with_name("publisher_process.py")


@contextmanager
def publisher(server: S3Server, bucket: str, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(CHILD), server.endpoint_url, bucket, server.access_key, server.secret_key]
    process = subprocess.Popen(
        [*command, str(folder), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that is not a log line."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if not line.startswith("20"):  # structlog begins with the time
            return line.strip()
    pytest.fail("the publisher ended")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def on_disk(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def change(root: Path, rng: random.Random, small: int) -> None:
    for number in rng.sample(range(300), small):
        path = root / f"lib/{number % 7}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(8_000))
    (root / "medium").write_bytes(rng.randbytes(5 * MIB))
    (root / "large").write_bytes(rng.randbytes(18 * MIB))


@pytest.mark.timeout(120 + 20 * KILLS)
def test_publisher_killed_at_any_moment_shows_nothing_half_done_and_the_next_completes_it(
    s3_server: S3Server, s3_bucket: str, store: S3ObjectStore, tmp_path: Path
) -> None:
    root, rng = tmp_path / "src", random.Random(7)
    change(root, rng, 300)
    with publisher(s3_server, s3_bucket, root) as process:
        assert said(process) == "ready"
        begun = time.monotonic()
        go(process)
        first = said(process)
        took_s = time.monotonic() - begun
    trees = {first: on_disk(root)}
    for _ in range(KILLS):
        change(root, rng, 30)
        with publisher(s3_server, s3_bucket, root) as process:
            assert said(process) == "ready"
            go(process)
            time.sleep(rng.uniform(0, took_s))  # not a wait: the kill must come at a random moment
        visible = list_releases(store, "p")
        told = publish(store, name="p", files=collect(root, include=["**"]), dry_run=True)
        assert set(visible) <= {*trees, told.digest}
        if told.digest in visible:
            assert read_release(store, "p", told.digest) == on_disk(root)

        made = publish(store, name="p", files=collect(root, include=["**"]))

        assert (made.digest, made.layout.packs) == (told.digest, told.layout.packs)
        trees[made.digest] = on_disk(root)
    assert list_releases(store, "p") == sorted(trees)
    assert {entry.digest for entry in published(store, "p")} == set(trees)
    for digest, tree in trees.items():
        assert read_release(store, "p", digest) == tree
    left = live_leases(store, keys.PUBLISH_LEASES, datetime.now(UTC))
    assert len(left) <= KILLS  # they expire by themselves
    assert all(item.lease is not None for item in left)


def test_memory_stays_within_its_bound_whatever_the_sizes(
    s3_server: S3Server, s3_bucket: str, store: S3ObjectStore, tmp_path: Path
) -> None:
    rng = random.Random(3)
    (tmp_path / "warm").write_bytes(rng.randbytes(100))
    for number in range(2_000):
        (tmp_path / f"small-{number}").write_bytes(rng.randbytes(8_000))
    for number in range(24):  # two of them make the largest frame
        (tmp_path / f"medium-{number}").write_bytes(rng.randbytes(4 * MIB - 1))
    for number in range(2):
        (tmp_path / f"large-{number}").write_bytes(rng.randbytes(80 * MIB))

    with publisher(s3_server, s3_bucket, tmp_path, "memory") as process:
        grown_mib = int(said(process))

    assert grown_mib <= MAX_MIB
    (digest,) = list_releases(store, "p")
    assert read_release(store, "p", digest) == on_disk(tmp_path)


def test_one_changed_file_in_a_hundred_moves_less_than_two_percent_of_the_bytes(tmp_path: Path) -> None:
    rng, store = random.Random(1), MemoryObjectStore()
    for number in range(2_000):
        path = tmp_path / f"d{number % 100}/f{number}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(rng.randbytes(8_192))
    cold = publish(store, name="p", files=collect(tmp_path, include=["**"]))
    for number in rng.sample(range(2_000), 20):
        (tmp_path / f"d{number % 100}/f{number}.bin").write_bytes(rng.randbytes(8_192))
    read_before = sum(store.read_bytes.values())

    warm = publish(store, name="p", files=collect(tmp_path, include=["**"]))

    assert (warm.uploaded_count, warm.reused_count) == (20, 1_980)
    assert warm.sent_bytes < 0.02 * cold.sent_bytes
    assert sum(store.read_bytes.values()) - read_before < 0.01 * cold.sent_bytes  # tables of packs
    assert read_release(store, "p", warm.digest) == on_disk(tmp_path)
