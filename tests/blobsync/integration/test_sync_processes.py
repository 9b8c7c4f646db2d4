"""Two publishers and five syncers at once, on one bucket and one host: each object is fetched once.

NIMBUS_BLOB_ROUNDS: number of rounds. NIMBUS_CHAOS_SEED: the seed that a run printed, to repeat its files.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from blobsync import LocalStore, Manifest, S3Config, S3ObjectStore, collect, publish
from nimbus.localstack.s3 import S3Server
from tests.blobsync.local_store_samples import contents
from tests.report import number_from, say
from tests.s3_proxy.faults import ProxiedRequest
from tests.s3_proxy.proxy import FaultProxy

ROUNDS = number_from("NIMBUS_BLOB_ROUNDS", 2)
SEED = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1_000_000))
SYNCERS, PUBLISHERS = 5, 2
ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(120 + 30 * ROUNDS)


class Requests:
    """Counts the requests through a proxy, by range of packs and blobs."""

    def __init__(self) -> None:
        self.ranges: Counter[tuple[str, int | None]] = Counter()

    def __call__(self, request: ProxiedRequest) -> None:
        if request.gets and request.key.startswith(("packs/", "blobs/")):
            self.ranges[request.key, request.start] += 1


@contextmanager
def children(
    endpoint: str, server: S3Server, bucket: str, folder: Path
) -> Iterator[list[subprocess.Popen[str]]]:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }
    command = [sys.executable, "-m", "tests.blobsync.integration.sync_child", endpoint, bucket, str(folder)]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(SYNCERS)
    ]
    try:
        yield started
    finally:
        for child in started:
            assert child.stdin is not None
            child.stdin.close()
        for child in started:
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def write_files(folder: Path, rng: random.Random, shared: Path | None) -> Path:
    """Write some small files, sometimes one that is a separate object, and one of several chunks."""
    folder.mkdir(parents=True)
    for number in range(rng.randint(1, 80)):
        (folder / f"f{number}").write_bytes(rng.randbytes(rng.randint(0, 20_000)))
    if rng.random() < 0.5:
        (folder / "alone").write_bytes(rng.randbytes(5 << 20))
    if rng.random() < 0.2:
        (folder / "chunked").write_bytes(rng.randbytes(rng.randint(17 << 20, 40 << 20)))
    for source in sorted(shared.iterdir()) if shared is not None else ():
        if rng.random() < 0.5:
            (folder / f"shared-{source.name}").write_bytes(source.read_bytes())
    return folder


def _round(folder: Path, rng: random.Random, former: Path | None) -> dict[str, Path]:
    """Files of each release: some of the previous release, new ones, and some of the other publisher."""
    first = write_files(folder / "p", rng, former)
    return {"p": first, "q": write_files(folder / "q", rng, first), "both": first}


def wanted_line(manifests: list[Manifest]) -> str:
    return " ".join(f"{made.name}@{made.digest}" for made in manifests)


def test_five_syncers_and_two_publishers_at_once_end_with_what_was_published_and_fetch_nothing_twice(
    s3_server: S3Server, s3_config: S3Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"sync: {ROUNDS} rounds, NIMBUS_CHAOS_SEED={SEED}"])
    log: list[str] = []
    rng, requests, root = random.Random(SEED), Requests(), tmp_path / "store"
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(s3_server.endpoint_url, requests))
        stores = [stack.enter_context(closing(S3ObjectStore(s3_config))) for _ in range(PUBLISHERS)]
        threads = stack.enter_context(ThreadPoolExecutor(PUBLISHERS))
        syncers = stack.enter_context(children(proxy.endpoint_url, s3_server, s3_config.bucket, root))
        wanted: list[Manifest] = []
        folders: dict[str, Path] = {}
        for number in range(ROUNDS + 1):
            _tell(syncers, wanted)  # they fetch the last release while the next one is published
            new = _round(tmp_path / "src" / str(number), rng, folders.get("p"))
            published = list(
                threads.map(_publish_all, stores, [["p", "both"], ["q", "both"]], [new] * PUBLISHERS)
            )
            _answered(syncers, wanted, log)
            _identical(root, wanted, folders)
            wanted = list({made.digest: made for each in published for made in each}.values())
            assert len(wanted) == 3, "both publishers made the same release of the same files"
            folders = new
        # Bytes, not requests: a request is repeated if the server has just closed its connection.
        sizes = {info.key: info.size_bytes for kind in ("packs/", "blobs/") for info in stores[0].list(kind)}
        fetched = {key: proxy.body_bytes[key] for key, _ in requests.ranges}
        again = {key: size for key, size in fetched.items() if size != sizes[key]}
        assert again == {}, "".join(log)
    asked = sum(requests.ranges.values())
    say(capsys, [f"sync: {len(fetched)} objects in {asked} ranges, no byte of them twice"])


def _tell(syncers: list[subprocess.Popen[str]], wanted: list[Manifest]) -> None:
    for child in syncers if wanted else ():
        assert child.stdin is not None
        child.stdin.write(wanted_line(wanted) + "\n")
        child.stdin.flush()


def _answered(syncers: list[subprocess.Popen[str]], wanted: list[Manifest], log: list[str]) -> None:
    for child in syncers if wanted else ():
        assert child.stdout is not None
        while (line := child.stdout.readline()) and line.strip() != wanted_line(wanted):
            log.append(line)
        assert line, "a syncer died"


def _identical(root: Path, wanted: list[Manifest], folders: dict[str, Path]) -> None:
    with LocalStore(root) as local:
        for made in wanted:
            assert not local.verify(made.ref)
            assert contents(local.materialise(made.ref)) == contents(folders[made.name])


def _publish_all(store: S3ObjectStore, names: list[str], folders: dict[str, Path]) -> list[Manifest]:
    return [
        publish(store, name=name, files=collect(folders[name], include=["**"])).manifest for name in names
    ]
