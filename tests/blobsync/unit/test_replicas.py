"""Records of the releases that each host has verified, and waiting until enough hosts have one."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from blobsync import (
    BlobSyncConfigError,
    BucketAccessDeniedError,
    BucketUnavailableError,
    ReplicaBoard,
    ReplicaPolicy,
    ReplicaRecord,
    Replicas,
    ReplicasMissingError,
    wait_for_replicas,
)
from blobsync.bucket import keys
from blobsync.replicas import MAX_DIGESTS, MAX_RECORD_BYTES
from blobsync.testing.memory import MemoryObjectStore

A, B = "a" * 64, "b" * 64
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SOON, NEVER = timedelta(milliseconds=50), timedelta(minutes=5)
QUICKLY = timedelta(milliseconds=2)


def record(host: str, *digests: str) -> ReplicaRecord:
    return ReplicaRecord(host, digests, NOW)


def test_record_has_one_form_and_reads_back() -> None:
    made = ReplicaRecord("h1", (B, A, B), NOW.replace(microsecond=7))

    assert made == record("h1", A, B)
    assert ReplicaRecord.parse(made.encode()) == made
    assert len(record("h1", *[f"{number:064x}" for number in range(40)]).encode()) < 3_000


def test_largest_record_is_within_what_is_read() -> None:
    most = record("h" * 128, *[f"{number:064x}" for number in range(MAX_DIGESTS)])

    assert len(most.encode()) <= MAX_RECORD_BYTES
    with pytest.raises(BlobSyncConfigError, match="more than the"):
        record("h", *[f"{number:064x}" for number in range(MAX_DIGESTS + 1)])


@pytest.mark.parametrize("host", ["", "a/b", "../x", "ü", "h" * 129])
def test_host_that_cannot_be_a_key_is_refused(host: str) -> None:
    with pytest.raises(BlobSyncConfigError, match="cannot name a host"):
        record(host)
    with pytest.raises(BlobSyncConfigError, match="no digests"):
        record("h", "A" * 64)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        record("h", A).encode() + b" ",
        record("h", A).encode().replace(b'"schema":1', b'"schema":2'),
        record("h", A).encode().replace(b'"schema":1', b'"schema":true'),
        record("h", A).encode().replace(A.encode(), b"short"),
        record("h", A).encode().replace(b"2026-01-02", b"2026-13-02"),
        record("h", A).encode().replace(b'"h"', b"1"),
        record("h", A).encode().replace(b'["', b'[1,"'),
    ],
)
def test_rubbish_is_no_record(data: bytes) -> None:
    assert ReplicaRecord.parse(data) is None


def test_board_tells_holders_from_those_who_lack_it_and_those_who_are_silent() -> None:
    store = MemoryObjectStore(now=lambda: NOW)
    board = ReplicaBoard(store, now=lambda: NOW)
    for made in (record("h1", A, B), record("h2", B), record("h3", A)):
        board.announce(made)
    store.write(keys.replica("h4"), b"rubbish")
    store.write(keys.replica("h5"), record("h1", A).encode())  # the record of another host
    store.write(keys.replica("h6"), b" " * (MAX_RECORD_BYTES + 1))
    store.write(keys.replica("h7/x"), b"no host")

    assert board.read(A) == Replicas(A, ("h1", "h3"), ("h2",), ("h4", "h5", "h6"))
    assert board.read(B).holders == ("h1", "h2")
    board.withdraw("h1")
    assert board.read(B).holders == ("h2",)
    late = ReplicaBoard(store, now=lambda: NOW + timedelta(seconds=61))
    assert late.read(B, timedelta(seconds=60)).holders == ()
    assert "h2" in late.read(B, timedelta(seconds=60)).silent


def test_waiting_ends_when_enough_hosts_have_it() -> None:
    store = MemoryObjectStore()
    board = ReplicaBoard(store)
    board.announce(record("h1", A))
    looked = threading.Event()

    class Watched(ReplicaBoard):
        def read(self, digest: str, max_age: timedelta = NEVER) -> Replicas:
            looked.set()
            return super().read(digest, max_age)

    def join() -> None:
        looked.wait(60)
        board.announce(record("h2", A))

    joining = threading.Thread(target=join)
    joining.start()
    report = wait_for_replicas(Watched(store), A, 2, NEVER, ReplicaPolicy.REJECT, look_interval=QUICKLY)
    joining.join()

    assert (report.replicas.holders, report.warning) == (("h1", "h2"), None)


def test_too_few_in_time_are_refused_with_names_or_proceeded_with_and_said() -> None:
    board = ReplicaBoard(MemoryObjectStore())
    board.announce(record("h1", A))
    board.announce(record("h2", B))

    with pytest.raises(ReplicasMissingError, match=r"1 of 2 .* at h1; not yet at h2; no valid record: none"):
        wait_for_replicas(board, A, 2, SOON, ReplicaPolicy.REJECT, look_interval=QUICKLY)
    report = wait_for_replicas(board, A, 2, SOON, ReplicaPolicy.PROCEED, look_interval=QUICKLY)

    assert report.replicas == Replicas(A, ("h1",), ("h2",), ())
    assert report.warning is not None and "1 of 2" in report.warning


def test_none_wanted_is_had_at_once() -> None:
    report = wait_for_replicas(ReplicaBoard(MemoryObjectStore()), A, 0, timedelta(0), ReplicaPolicy.REJECT)
    assert report.warning is None


def test_waiting_outlives_an_outage_and_says_so_at_the_end() -> None:
    store = MemoryObjectStore()
    store.unavailable = True
    board = ReplicaBoard(store)

    with pytest.raises(ReplicasMissingError, match="could not be asked"):
        wait_for_replicas(board, A, 1, SOON, ReplicaPolicy.REJECT, look_interval=QUICKLY)

    class Denied(ReplicaBoard):
        def read(self, digest: str, max_age: timedelta = NEVER) -> Replicas:
            raise BucketAccessDeniedError("no")

    with pytest.raises(BucketAccessDeniedError):
        wait_for_replicas(Denied(store), A, 1, NEVER, ReplicaPolicy.PROCEED)
    with pytest.raises(BucketUnavailableError):
        board.announce(record("h1"))


def test_stopping_ends_the_wait_at_once() -> None:
    stopping = threading.Event()
    stopping.set()

    report = wait_for_replicas(
        ReplicaBoard(MemoryObjectStore()), A, 1, NEVER, ReplicaPolicy.PROCEED, stopping=stopping
    )
    assert report.warning is not None
