"""Large uploads to a real S3 server: in parts, continued after an interruption, with limited memory."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import BucketUnavailableError, LocalStoreError, RetryPolicy, S3Config, S3ObjectStore
from blobsync.retry import call_retrying
from nimbus.localstack.s3 import S3Server
from tests.s3_proxy.faults import SLOW_DOWN, Fail, ProxiedRequest, Reset, no_fault
from tests.s3_proxy.proxy import FaultProxy

PART = 5 << 20
PARTS = 6
DATA = random.Random(5).randbytes(PART * (PARTS - 1) + 1234)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def config(proxy: FaultProxy, s3_config: S3Config) -> S3Config:
    return replace(
        s3_config,
        endpoint_url=proxy.endpoint_url,
        multipart_bytes=PART,
        part_bytes=PART,
        max_attempts=1,
    )


@pytest.fixture
def store(config: S3Config) -> Iterator[S3ObjectStore]:
    made = S3ObjectStore(config)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "large").write_bytes(DATA)
    return tmp_path / "large"


def test_upload_that_broke_off_sends_only_what_the_store_lacks(
    proxy: FaultProxy, store: S3ObjectStore, file: Path
) -> None:
    proxy.rule = lambda request: SLOW_DOWN if request.query.get("partNumber") in {"5", "6"} else None
    with pytest.raises(BucketUnavailableError):
        store.write("large", file)
    assert store.size("large") is None
    sent_before = proxy.uploaded_bytes["large"]

    proxy.rule = no_fault
    told: list[int] = []
    store.write("large", file, on_progress=told.append)

    assert b"".join(store.read("large")) == DATA
    assert sum(told) == len(DATA)
    resent = proxy.uploaded_bytes["large"] - sent_before
    assert resent < 3 * PART, "existing parts are not sent again"
    assert list(store.unfinished_uploads("")) == []


def test_other_bytes_under_the_same_key_do_not_take_up_foreign_parts(
    proxy: FaultProxy, store: S3ObjectStore, file: Path
) -> None:
    proxy.rule = lambda request: SLOW_DOWN if request.query.get("partNumber") == "6" else None
    with pytest.raises(BucketUnavailableError):
        store.write("large", file)
    proxy.rule = no_fault
    other = bytes(PART) + DATA[PART:]

    store.write("large", other)

    assert b"".join(store.read("large")) == other


def test_refusal_for_good_leaves_no_parts_behind(proxy: FaultProxy, store: S3ObjectStore, file: Path) -> None:
    refused = Fail(403, "AccessDenied")
    proxy.rule = lambda request: refused if request.query.get("partNumber") == "3" else None

    with pytest.raises(Exception, match="AccessDenied"):
        store.write("large", file)

    assert list(store.unfinished_uploads("")) == []


def test_upload_that_somebody_abandoned_meanwhile_begins_anew(
    proxy: FaultProxy, store: S3ObjectStore, file: Path
) -> None:
    abandoned: list[int] = []
    begun: list[str] = []

    def on_progress(size_bytes: int) -> None:
        if size_bytes and not abandoned:
            abandoned.append(store.abandon_uploads("", timedelta(0)))

    def note(request: ProxiedRequest) -> None:
        if request.method == "POST" and "uploads" in request.query:
            begun.append(request.key)

    proxy.rule = note
    # The server may silently close a connection on which a part of the aborted upload still arrives.
    call_retrying(lambda: store.write("large", file, on_progress=on_progress), RetryPolicy(), what="write")

    assert begun == ["large", "large"]
    assert b"".join(store.read("large")) == DATA


def test_two_writers_of_the_same_object_are_both_right(store: S3ObjectStore, file: Path) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        try:  # callers repeat it if the server closes an idle connection
            call_retrying(lambda: store.write("large", file), RetryPolicy(), what="the test's write")
        except BaseException as exc:  # noqa: BLE001 - asserted below
            failures.append(exc)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert b"".join(store.read("large")) == DATA


def test_file_that_changes_while_it_is_sent_does_not_become_visible(store: S3ObjectStore, file: Path) -> None:
    def meddle(size_bytes: int) -> None:
        if size_bytes:
            with file.open("ab") as grown:
                grown.write(b"more")

    with pytest.raises(LocalStoreError, match="changed"):
        store.write("large", file, on_progress=meddle)

    assert store.size("large") is None
    assert list(store.unfinished_uploads("")) == []


def test_lost_acknowledgement_of_the_last_step_is_unavailable_and_the_next_try_succeeds(
    proxy: FaultProxy, store: S3ObjectStore, file: Path
) -> None:
    proxy.rule = lambda request: (
        Reset() if request.method == "POST" and "uploadId" in request.query and request.count <= 2 else None
    )
    with pytest.raises(BucketUnavailableError):
        store.write("large", file)
    proxy.rule = no_fault

    store.write("large", file)

    assert b"".join(store.read("large")) == DATA


def test_small_and_large_objects_are_written(store: S3ObjectStore, file: Path) -> None:
    store.write("small", b"1")
    store.write("large", file)
    store.delete_many(["small"])

    assert b"".join(store.read("large")) == DATA
    assert store.size("small") is None
