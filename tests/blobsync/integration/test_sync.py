"""Publishing and syncing over HTTP, with a real S3 server that is stopped and started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    LocalStore,
    Readiness,
    ReleaseRef,
    ReleaseState,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Secret,
    Syncer,
    collect,
    list_releases,
    publish,
)
from blobsync.bucket import keys
from nimbus.localstack.s3 import S3Server

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=50), max_wait=timedelta(milliseconds=500))
SOON = timedelta(seconds=30)
Eventually = Callable[..., None]


@pytest.fixture
def config(s3_config: S3Config) -> S3Config:
    return replace(s3_config, max_attempts=1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "src"
    (root / "lib").mkdir(parents=True)
    for number in range(60):
        (root / "lib" / f"m{number}.py").write_text(f"x = {number}\n" * 20)
    (root / "lib" / "empty.py").write_text("")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "big.whl").write_bytes(bytes(range(256)) * 40_000)  # too large to be uploaded from memory
    return root


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start_syncer(
    closing: ExitStack, config: S3Config, root: Path, on_change: Callable[[Readiness], None] = lambda _: None
) -> Syncer:
    store = S3ObjectStore(config)
    closing.callback(store.close)
    local = closing.enter_context(LocalStore(root))
    syncer = Syncer(store, local, retry=QUICK, on_change=on_change)
    closing.callback(syncer.close, SOON)
    syncer.start()
    return syncer


def files_below(root: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in root.rglob("*")
        if path.is_file()
    }


def test_two_syncers_of_one_host_and_one_of_another_end_with_what_was_published(
    config: S3Config,
    store: S3ObjectStore,
    source: Path,
    tmp_path: Path,
    closing: ExitStack,
    eventually: Eventually,
) -> None:
    made = publish(store, name="p", files=collect(source, include=["**"], dependencies=["*.whl"]))
    ref = ReleaseRef("p", made.digest)
    assert list_releases(store, "p") == [made.digest]
    assert (
        publish(store, name="p", files=collect(source, include=["**"], dependencies=["*.whl"])).uploaded_count
        == 0
    )

    syncers = [start_syncer(closing, config, tmp_path / host) for host in ("one", "one", "other")]
    for syncer in syncers:
        syncer.want({ref})

    for syncer in syncers:
        eventually(lambda syncer=syncer: syncer.readiness().is_ready(ref))
        assert files_below(syncer.ensure(ref, SOON)) == files_below(source)
    with LocalStore(tmp_path / "one") as local:
        assert not local.verify(made.manifest.ref)


def test_outage_leaves_what_is_ready_ready_and_the_rest_heals_by_itself(
    own_s3: S3Server, source: Path, tmp_path: Path, closing: ExitStack, eventually: Eventually
) -> None:
    config = S3Config(
        endpoint_url=own_s3.endpoint_url,
        bucket="artifacts",
        access_key_id=own_s3.access_key,
        secret_access_key=Secret(own_s3.secret_key),
        max_attempts=1,
    )
    store = S3ObjectStore(config)
    closing.callback(store.close)
    store.ensure_bucket()
    one = ReleaseRef("p", publish(store, name="p", files=collect(source, include=["**/*.py"])).digest)
    two = ReleaseRef("p", publish(store, name="p", files=collect(source, include=["**"])).digest)
    syncer = start_syncer(closing, config, tmp_path / "local")
    syncer.want({one})
    eventually(lambda: syncer.readiness().is_ready(one))

    own_s3.stop()
    syncer.want({one, two})

    eventually(lambda: syncer.readiness().releases.get(two) is not None)
    eventually(lambda: syncer.readiness().releases[two].state is ReleaseState.UNAVAILABLE)
    assert own_s3.endpoint_url in syncer.readiness().releases[two].reason
    assert syncer.readiness().is_ready(one)
    assert (syncer.ensure(one, SOON) / "lib/m1.py").is_file()

    own_s3.start()
    eventually(lambda: syncer.readiness().all_ready)


def test_release_that_nobody_published_is_absent_not_unavailable(
    config: S3Config, tmp_path: Path, closing: ExitStack, eventually: Eventually
) -> None:
    syncer = start_syncer(closing, config, tmp_path / "local")
    nothing = ReleaseRef("p", "0" * 64)
    syncer.want({nothing})

    eventually(lambda: nothing in syncer.readiness().releases)
    eventually(lambda: syncer.readiness().releases[nothing].state is ReleaseState.ABSENT)


def test_object_damaged_on_the_server_is_never_installed(
    config: S3Config,
    store: S3ObjectStore,
    source: Path,
    tmp_path: Path,
    closing: ExitStack,
    eventually: Eventually,
) -> None:
    made = publish(store, name="p", files=collect(source, include=["**/*.py", "big.whl"]))
    item = next(item for item in made.manifest.artifacts if item.path == "big.whl")
    key = keys.blob(item.blob.name)
    good = b"".join(store.read(key))
    store.write(key, good[:7] + b"8" + good[8:])
    ref = ReleaseRef("p", made.digest)
    syncer = start_syncer(closing, config, tmp_path / "local")
    syncer.want({ref})

    eventually(lambda: ref in syncer.readiness().releases)
    eventually(lambda: [found.path for found in syncer.readiness().releases[ref].missing] == ["big.whl"])
    eventually(lambda: syncer.readiness().releases[ref].state is ReleaseState.CORRUPT)
    assert not any((tmp_path / "local/blobs").glob("*/*"))

    store.write(key, good)
    eventually(lambda: syncer.readiness().is_ready(ref))
