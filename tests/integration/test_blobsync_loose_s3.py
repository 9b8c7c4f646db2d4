"""Releases of plain objects over HTTP: put there one by one by another client, with faults and with kills.

NIMBUS_CHAOS_SEED: as printed, to draw the same faults.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from blobsync import (
    LocalStore,
    ReleaseRef,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Secret,
    SourceChangedError,
    Syncer,
    adopt,
)
from blobsync.release.loose import BUNDLE_FILES, bundles_of
from blobsync.storage.releases import fetch_manifest
from blobsync.testing.s3_proxy import FaultProxy
from blobsync.testing.s3_proxy_faults import (
    EXPIRED_TOKEN,
    Fault,
    ProxiedRequest,
    RandomFaults,
    Stall,
    WrongBytes,
)
from nimbus.localstack.s3 import S3Server
from tests.chaos.report import number_from, say
from tests.local_store_samples import contents

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=20), max_wait=timedelta(milliseconds=200))
SOON = timedelta(seconds=60)
SEED = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1_000_000))
ROOT = Path(__file__).parents[2]
BELOW = "data/v 1"
Eventually = Callable[..., None]


class Asked:
    """Counts what is asked for of the plain objects, and breaks what a rule says."""

    def __init__(self) -> None:
        self.objects: Counter[str] = Counter()
        self.rule: Callable[[ProxiedRequest], Fault | None] = lambda _request: None

    def __call__(self, request: ProxiedRequest) -> Fault | None:
        if request.gets and request.key.startswith("data/"):
            self.objects[request.key] += 1
        return self.rule(request)


class Site:
    """A bucket with plain objects, and a proxy in front of it."""

    def __init__(self, server: S3Server, bucket: str, folder: Path, stack: ExitStack) -> None:
        self._server, self.bucket, self._stack, self.root = server, bucket, stack, folder / "local"
        self.proxy = stack.enter_context(
            FaultProxy(server.endpoint_url, access_key=server.access_key, secret_key=server.secret_key)
        )
        self.asked = Asked()
        self.proxy.rule = self.asked
        self.store = self.connected(server.endpoint_url)

    def connected(self, endpoint: str) -> S3ObjectStore:
        store = S3ObjectStore(
            S3Config(
                endpoint_url=endpoint,
                bucket=self.bucket,
                access_key_id=self._server.access_key,
                secret_access_key=Secret(self._server.secret_key),
                read_timeout=timedelta(seconds=1),
                max_attempts=1,
            )
        )
        self._stack.callback(store.close)
        return store

    def lay(self, files: Mapping[str, bytes]) -> None:
        """With boto3, as it comes, one object after the other."""
        client: Any = boto3.client(
            "s3",
            endpoint_url=self._server.endpoint_url,
            aws_access_key_id=self._server.access_key,
            aws_secret_access_key=self._server.secret_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
        )

        def put(item: tuple[str, bytes]) -> None:
            client.put_object(Bucket=self.bucket, Key=f"{BELOW}/{item[0]}", Body=item[1])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, files.items()))
        client.close()

    def take(self, files: Mapping[str, bytes]) -> ReleaseRef:
        """Put them there and adopt them."""
        self.lay(files)
        return ReleaseRef("p", adopt(self.store, name="p", prefix=BELOW, retry=QUICK).digest)

    def syncer(self) -> Syncer:
        local = self._stack.enter_context(LocalStore(self.root))
        syncer = Syncer(self.connected(self.proxy.endpoint_url), local, retry=QUICK)
        self._stack.callback(syncer.close, SOON)
        syncer.start()
        return syncer

    def command(self, *words: str) -> subprocess.Popen[str]:
        """`python -m blobsync ...`, through the proxy."""
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": self._server.access_key,
            "AWS_SECRET_ACCESS_KEY": self._server.secret_key,
            "BLOBSYNC_ENDPOINT": self.proxy.endpoint_url,
            "BLOBSYNC_BUCKET": self.bucket,
        }
        started = subprocess.Popen(
            [sys.executable, "-m", "blobsync", *words, "-o", "json"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._stack.callback(_ended, started)
        return started

    def packs(self) -> int:
        return len(list((self.root / "packs").glob("*/*"))) if self.root.exists() else 0


def _ended(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.fixture
def site(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(s3_server, s3_bucket, tmp_path, stack)


def mixed(seed: int) -> dict[str, bytes]:
    rng = random.Random(seed)
    files = {
        f"lib {number % 7}/m+{number}.py": rng.randbytes(rng.randint(0, 20_000)) for number in range(300)
    }
    return {
        **files,
        "empty": b"",
        "größe/ü&=?.txt": b"names",
        "small": rng.randbytes(3 << 20),
        "alone": rng.randbytes(6 << 20),
        "chunked": rng.randbytes(40 << 20),
    }


def many(count: int) -> dict[str, bytes]:
    return {f"m{number:05}.py": f"x = {number}\n".encode() for number in range(count)}


def test_objects_put_there_by_another_client_are_adopted_and_synced(
    site: Site, eventually: Eventually
) -> None:
    files = mixed(1)
    ref = site.take(files)
    syncer = site.syncer()
    syncer.want([ref])

    eventually(lambda: syncer.readiness().is_ready(ref), within_s=60)

    assert contents(syncer.ensure(ref, SOON)) == files
    small = {f"{BELOW}/{path}": 1 for path, data in files.items() if len(data) <= 4 << 20}
    assert {key: site.asked.objects[key] for key in small} == small


def test_random_faults_let_nothing_wrong_in_and_all_is_here_in_the_end(
    site: Site, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"loose faults: NIMBUS_CHAOS_SEED={SEED}"])
    files = mixed(SEED)
    ref = site.take(files)
    site.proxy.rule = RandomFaults(SEED, 0.2)
    syncer = site.syncer()
    syncer.want([ref])

    eventually(lambda: syncer.readiness().is_ready(ref), within_s=120)  # with the faults still going on

    assert sum(site.proxy.faults.values()) >= 10
    assert contents(syncer.ensure(ref, SOON)) == files
    assert syncer.readiness().quarantined_count == 0
    with LocalStore(site.root) as other:
        kept = other.kept(ref)
        assert kept is not None
        assert not other.verify(kept.manifest)
    say(capsys, [f"loose faults: {dict(site.proxy.faults)}"])


def test_adopting_through_faults_gives_the_right_release_or_none(site: Site) -> None:
    files = {f"f{number}": os.urandom(number * 50) for number in range(100)}
    site.lay(files)
    right = adopt(site.store, name="p", prefix=BELOW, retry=QUICK, dry_run=True).digest
    faulty = RandomFaults(SEED, 0.2)

    def rule(request: ProxiedRequest) -> Fault | None:
        # Wrong bytes of the right size are beyond whoever reads for the first time; and who is refused, ends.
        fault = faulty(request)
        return None if isinstance(fault, WrongBytes) or fault == EXPIRED_TOKEN else fault

    site.asked.rule = rule
    store = site.connected(site.proxy.endpoint_url)

    for _ in range(20):
        try:
            made = adopt(store, name="p", prefix=BELOW, retry=QUICK)
        except SourceChangedError:  # a stale listing
            continue
        break

    assert made.digest == right
    assert site.proxy.faults


def test_killed_sync_goes_on_with_the_bundles_that_were_installed(site: Site, eventually: Eventually) -> None:
    ref = site.take(many(4 * BUNDLE_FILES + 10))
    last = bundles_of(fetch_manifest(site.store, ref.name, ref.digest), f"{BELOW}/")[-1]
    held = last.key(last.files[-1])
    site.asked.rule = lambda request: Stall(0) if request.key == held else None
    words = ("sync", f"p@{ref.digest}", "--store", str(site.root), "--timeout", "600")
    killed = site.command(*words)
    eventually(lambda: site.packs() == 4, within_s=60)

    killed.send_signal(signal.SIGKILL)
    killed.wait()
    site.asked.rule = lambda _request: None
    site.asked.objects.clear()
    again = site.command(*words)

    assert again.wait(60) == 0
    assert set(site.asked.objects) == {last.key(file) for file in last.files}
    with LocalStore(site.root) as local:
        kept = local.kept(ref)
        assert kept is not None
        assert not local.verify(kept.manifest)
        assert list((site.root / "partial").iterdir()) == []


def test_processes_of_one_host_fetch_each_object_once(site: Site) -> None:
    files = many(3 * BUNDLE_FILES)
    ref = site.take(files)
    words = ("sync", f"p@{ref.digest}", "--store", str(site.root))

    started = [site.command(*words) for _ in range(3)]

    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert {site.asked.objects[f"{BELOW}/{path}"] for path in files} == {1}


def test_command_line_adopts_verifies_and_shows(site: Site) -> None:
    files = {"a.py": b"1", "b/c.py": b"22"}
    site.lay(files)

    def answer(*words: str) -> tuple[int, Any]:
        process = site.command(*words)
        out, err = process.communicate(timeout=60)
        assert out, err
        return process.returncode, json.loads(out)

    code, made = answer("adopt", "p", "--below", BELOW)
    assert code == 0
    assert (made["files"], made["loose"], made["read_bytes"]) == (2, f"{BELOW}/", 3)
    assert answer("adopt", "p", "--below", BELOW, "--dry-run")[1]["digest"] == made["digest"]
    assert answer("verify", "p", "--deep")[1]["releases"][0]["flaws"] == []
    cat = site.command("cat", "p", "b/c.py")
    assert cat.communicate(timeout=60)[0] == "22"
    site.lay({"a.py": b"x"})
    code, found = answer("verify", "p", "--deep")
    assert code == 1
    assert [flaw["key"] for flaw in found["releases"][0]["flaws"]] == [f"{BELOW}/a.py"]
