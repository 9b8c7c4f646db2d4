"""Data from outside: what is verified before a task, and what its code gets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from blobsync import BucketAccessDeniedError, BucketUnavailableError
from blobsync.testing.memory import MemoryObjectStore
from nimbus.domain.data.publications import OutsideData, Version
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace
from nimbus.task import OutsideError
from nimbus.worker.data.outside import OutsideRefusedError, to_verify, verify
from nimbus.worker.driver.files import reads_document
from tests.nimbus.unit.test_task_uris import a_context
from tests.nimbus.worker_bench import Bench


def outside(path: Path, data: bytes) -> OutsideData:
    return OutsideData(uri=path.as_uri(), sha256=hashlib.sha256(data).hexdigest())


CLUSTER = SparkPlace(target="big", deploy=SparkDeploy.CLUSTER)
MINUTE = timedelta(minutes=1)


def in_bucket(key: str, data: bytes) -> OutsideData:
    return OutsideData(uri=f"s3://in/{key}", sha256=hashlib.sha256(data).hexdigest())


def checked(of: OutsideData, store: Any = None, timeout: timedelta = MINUTE) -> None:
    verify(of, {"in": store}.__getitem__, timeout)


class Store(MemoryObjectStore):
    """A store that fails, or whose answers break off."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def read(self, key: str, **_: Any) -> Iterator[bytes]:
        yield b"1"
        raise self.error


def test_object_is_compared_with_its_digest_in_pieces() -> None:
    store = MemoryObjectStore()
    store.write("day 1/a%20b", data := b"rows" * 1_000_000)
    checked(in_bucket("day 1/a%20b", data), store)

    with pytest.raises(OutsideRefusedError, match="has another digest, and was published with sha256:"):
        checked(in_bucket("day 1/a%20b", b"else"), store)
    with pytest.raises(OutsideRefusedError, match="does not exist"):
        checked(in_bucket("day 2", data), store)
    with pytest.raises(OutsideRefusedError, match="cannot be compared with it"):
        checked(in_bucket("", data), store)


def test_object_that_comes_too_slowly_is_refused_with_what_to_do() -> None:
    store = MemoryObjectStore()
    store.write("a", b"1")
    with pytest.raises(OutsideRefusedError, match=r"within 0:00:00 \(worker.prepare_timeout\)"):
        checked(in_bucket("a", b"1"), store, timedelta(0))


def test_object_that_the_worker_may_not_read_is_refused_and_an_outage_is_tried_again() -> None:
    with pytest.raises(OutsideRefusedError, match="denied"):
        checked(in_bucket("a", b"1"), Store(BucketAccessDeniedError("denied")))
    with pytest.raises(BucketUnavailableError):
        checked(in_bucket("a", b"1"), Store(BucketUnavailableError("away")))


@pytest.mark.parametrize("in_cluster", [False, True])
def test_what_is_verified_depends_on_place_and_digest(tmp_path: Path, in_cluster: bool) -> None:
    digest = "a" * 64
    given = [
        OutsideData(uri=uri, sha256=sha256)
        for uri in ("file:///in/1", "s3://in/1", "https://in/1")
        for sha256 in (digest, "")
    ]
    at = datetime(2026, 3, 1, tzinfo=UTC)
    bench = Bench(tmp_path)
    order = bench.order("task.py", **({"spark_place": CLUSTER} if in_cluster else {}))
    bench.close()
    versions = tuple(Version(partition="", number=1, at=at, outside=one) for one in given)
    order = replace(order, pins={"landing": versions})
    verified = [one.uri for one in to_verify(order)]

    assert verified == (["s3://in/1"] if in_cluster else ["file:///in/1", "s3://in/1"])
    document = reads_document(order)["landing"]
    assert [one["outside"] for one in document if one["verified"]] == verified


def test_file_is_compared_with_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "a b.csv"
    path.write_bytes(b"1")
    checked(outside(path, b"1"))

    with pytest.raises(OutsideRefusedError, match="was published with sha256:d4735e3a") as refused:
        checked(outside(path, b"2"))
    assert hashlib.sha256(b"1").hexdigest() not in str(refused.value)  # readers of runs may not read the file
    with pytest.raises(OutsideRefusedError, match="is no file on this host"):
        checked(outside(tmp_path, b"1"))


def test_code_of_a_task_gets_the_uri_and_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"partition": "", "run": "", "number": 7, "at": "2026-03-01T06:00:00+00:00"}
    here = {
        **one,
        "outside": "file:///in/a%20b.csv",
        "sha256": "a" * 64,
        "verified": True,
        "value": {"rows": 3},
    }
    there = {**one, "outside": "s3://in/1", "sha256": "", "value": None}
    task = replace(a_context(tmp_path, monkeypatch, None), pinned={"landing": [here, there]})
    local, remote = task.reads["landing"]

    assert (local.path, local.uri, local.value) == (Path("/in/a b.csv"), "file:///in/a%20b.csv", {"rows": 3})
    assert (local.verified, remote.verified) == (True, False)
    assert (remote.uri, remote.files(), remote.value) == ("s3://in/1", ["s3://in/1"], None)
    with pytest.raises(OutsideError, match="s3://in/1 is not on this host: open it by `uri`"):
        _ = remote.path
