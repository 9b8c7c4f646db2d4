"""A real S3 server behind a proxy with faults: no wrong bytes are accepted, and all errors are ours."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from blobsync import (
    BlobSyncError,
    BucketUnavailableError,
    S3Config,
    S3ObjectStore,
    Secret,
)
from nimbus.localstack.s3 import S3Server
from tests.s3_proxy.faults import (
    SLOW_DOWN,
    USUAL_FAULTS,
    Fail,
    Fault,
    IgnoreRange,
    InterimAnswers,
    NoHttp,
    OtherWords,
    ProxiedRequest,
    RandomFaults,
    Redirect,
    Reset,
    SlowBody,
    StaleListing,
    Stall,
    Trickle,
    Truncate,
    WrongBytes,
    WrongRange,
    no_fault,
)
from tests.s3_proxy.proxy import FaultProxy

MIB = 1 << 20
DATA = random.Random(4).randbytes(3 * MIB + 17)
QUICK = timedelta(seconds=1)

MakeStore = Callable[..., S3ObjectStore]


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(
        s3_server.endpoint_url, access_key=s3_server.access_key, secret_key=s3_server.secret_key
    ) as running:
        yield running


@pytest.fixture
def make_store(proxy: FaultProxy, s3_server: S3Server, s3_bucket: str) -> Iterator[MakeStore]:
    made: list[S3ObjectStore] = []

    def make(**more: object) -> S3ObjectStore:
        settings: dict[str, object] = {
            "endpoint_url": proxy.endpoint_url,
            "bucket": s3_bucket,
            "access_key_id": s3_server.access_key,
            "secret_access_key": Secret(s3_server.secret_key),
            "read_timeout": QUICK,
            "max_attempts": 1,
        }
        made.append(S3ObjectStore(S3Config(**(settings | more))))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> S3ObjectStore:
    made = make_store()
    made.write("k", DATA)
    return made


def on_gets(fault: Fault) -> Callable[[ProxiedRequest], Fault | None]:
    return lambda request: fault if request.gets else None


def nothing(_size_bytes: int) -> None:
    """Ignore the progress."""


@pytest.mark.parametrize(
    "fault",
    [
        Fail(),
        SLOW_DOWN,
        Truncate(0),
        Truncate(MIB),
        Truncate(len(DATA) - 1),
        Reset(),
        Reset(0),
        Reset(MIB),
        Stall(0),
        Stall(MIB),
        InterimAnswers(),
        Trickle(),
        NoHttp(),
    ],
    ids=repr,
)
def test_broken_answer_is_unavailable_and_the_next_one_is_good(
    proxy: FaultProxy, store: S3ObjectStore, tmp_path: Path, fault: Fault
) -> None:
    proxy.rule = on_gets(fault)
    began = time.monotonic()

    with pytest.raises(BucketUnavailableError, match="k"):
        b"".join(store.read("k"))
    with (tmp_path / "file").open("wb") as file, pytest.raises(BucketUnavailableError):
        store.copy("k", file.fileno(), start=0, size_bytes=len(DATA), on_progress=nothing)

    assert time.monotonic() - began < 60
    proxy.rule = no_fault
    assert b"".join(store.read("k")) == DATA


@pytest.mark.parametrize(
    "fault",
    [Truncate(0), Truncate(100), OtherWords(b""), OtherWords(), OtherWords(b"<Else/>")],
    ids=repr,
)
def test_answer_that_is_not_of_s3_is_no_empty_listing_and_no_object_written(
    proxy: FaultProxy, make_store: MakeStore, fault: Fault
) -> None:
    store = make_store(multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    store.write("k", b"1")
    proxy.rule = lambda request: fault if request.method != "HEAD" else None

    for ask in (
        store.check,
        lambda: list(store.list("")),
        lambda: list(store.unfinished_uploads("")),
        lambda: store.write("in-parts", bytes(11 * MIB)),
    ):
        with pytest.raises(BucketUnavailableError):
            ask()
    if isinstance(fault, OtherWords):  # its answer has no body that could be cut
        with pytest.raises(BucketUnavailableError):
            store.write("l", b"1")
        proxy.rule = lambda _: fault
        with pytest.raises(BucketUnavailableError):
            store.size("k")

    proxy.rule = no_fault
    after = make_store()  # with new connections
    assert "k" in [info.key for info in after.list("")]
    assert after.size("in-parts") is None


def asks_for(request: ProxiedRequest) -> str:
    """The operation of S3 that a request calls."""
    query = request.query
    if not request.key:
        return "ListObjectsV2" if request.lists else "ListMultipartUploads"
    if "uploadId" in query:
        return {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "GET": "ListParts"}[request.method]
    if request.method == "POST":
        return "CreateMultipartUpload"
    return {"PUT": "PutObject", "HEAD": "HeadObject", "GET": "GetObject"}[request.method]


def answered_otherwise(operation: str, request: ProxiedRequest) -> OtherWords | None:
    """A rule: another server answers this operation instead of S3."""
    return OtherWords(b"<Else/>") if asks_for(request) == operation else None


@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "ListParts"]
)
def test_step_of_an_upload_that_another_answered_is_not_done_and_the_next_try_does_it(
    proxy: FaultProxy, make_store: MakeStore, operation: str
) -> None:
    large = random.Random(5).randbytes(11 * MIB)
    store = make_store(multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    broken = ["UploadPart", operation]  # ListParts returns the parts of an interrupted upload
    for each in broken if operation == "ListParts" else [operation]:
        proxy.rule = partial(answered_otherwise, each)
        with pytest.raises(BucketUnavailableError, match=f"the answer to {each} has no"):
            store.write("large", large)

    proxy.rule = no_fault
    after = make_store(multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    assert after.size("large") is None
    after.write("large", large)
    assert b"".join(after.read("large")) == large


def test_answer_that_trickles_is_given_up(proxy: FaultProxy, make_store: MakeStore) -> None:
    store = make_store(slowest_bytes_per_s=MIB, read_timeout=timedelta(seconds=1))
    store.write("k", DATA)
    proxy.rule = on_gets(SlowBody(100_000))

    with pytest.raises(BucketUnavailableError, match="too slow"):
        b"".join(store.read("k"))


def test_copy_that_waits_can_be_stopped(proxy: FaultProxy, make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(read_timeout=timedelta(seconds=200))
    store.write("k", DATA)
    proxy.rule = on_gets(Stall(MIB))
    told: list[int] = []

    def on_progress(size_bytes: int) -> None:
        told.append(size_bytes)
        if size_bytes == 0:
            raise InterruptedError("enough")

    with (tmp_path / "file").open("wb") as file, pytest.raises(InterruptedError):
        store.copy("k", file.fileno(), start=0, size_bytes=len(DATA), on_progress=on_progress)

    assert sum(told) == MIB


@pytest.mark.parametrize("fault", [WrongRange(), WrongRange(5 * MIB)], ids=repr)
def test_other_range_than_asked_for_is_refused_before_a_byte_is_used(
    proxy: FaultProxy, store: S3ObjectStore, tmp_path: Path, fault: Fault
) -> None:
    proxy.rule = on_gets(fault)
    (tmp_path / "file").write_bytes(b"-" * len(DATA))

    with (tmp_path / "file").open("r+b") as file, pytest.raises(BucketUnavailableError):
        store.copy("k", file.fileno(), start=10, size_bytes=MIB, on_progress=nothing)

    assert (tmp_path / "file").read_bytes() == b"-" * len(DATA)


def test_server_that_ignores_ranges_is_cut_right(
    proxy: FaultProxy, store: S3ObjectStore, tmp_path: Path
) -> None:
    proxy.rule = on_gets(IgnoreRange())

    with (tmp_path / "file").open("w+b") as file:
        store.copy("k", file.fileno(), start=MIB, size_bytes=MIB, on_progress=nothing)
        assert os.pread(file.fileno(), MIB, MIB) == DATA[MIB : 2 * MIB]
    assert b"".join(store.read("k", start=5, size_bytes=7)) == DATA[5:12]
    assert b"".join(store.read("k", start=len(DATA) - 3)) == DATA[-3:]
    assert proxy.faults["IgnoreRange"] == 3


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestTimeTooSkewed"])
def test_credentials_that_are_not_valid_at_this_time_are_worth_a_retry(
    proxy: FaultProxy, store: S3ObjectStore, code: str
) -> None:
    proxy.rule = lambda _: Fail(403, code)

    for call in (
        store.check,
        lambda: b"".join(store.read("k")),
        lambda: store.write("k", b"1"),
        lambda: list(store.list("")),
        lambda: store.delete_many(["k"]),
    ):
        with pytest.raises(BucketUnavailableError, match=f"{code}.*clock"):
            call()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_names_its_target_and_is_worth_a_retry(
    proxy: FaultProxy, make_store: MakeStore, status: int
) -> None:
    store = make_store(multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    proxy.rule = lambda _: Redirect(status)

    for call in (
        store.check,
        store.ensure_bucket,
        lambda: b"".join(store.read("k")),
        lambda: store.write("k", b"1"),
        lambda: store.write("k", bytes(6 * MIB)),
        lambda: store.size("k"),
        lambda: list(store.list("")),
        lambda: list(store.unfinished_uploads("")),
        lambda: store.delete("k"),
        lambda: store.delete_many(["k"]),
    ):
        with pytest.raises(
            BucketUnavailableError, match=r"redirects to http://127\.0\.0\.1:1/elsewhere: set endpoint_url"
        ) as told:
            call()
        assert "secret" not in str(told.value)
        assert len(told.traceback) < 50


TRUNCATED = {
    "ListObjectsV2": b"<ListBucketResult><IsTruncated>true</IsTruncated>"
    b"<Contents><Key>a</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
    b"</ListBucketResult>",
    "ListMultipartUploads": b"<ListMultipartUploadsResult><Bucket>b</Bucket><IsTruncated>true</IsTruncated>"
    b"</ListMultipartUploadsResult>",
}


@pytest.mark.parametrize("operation", TRUNCATED)
def test_listing_that_is_truncated_without_a_token_does_not_end_in_silence(
    proxy: FaultProxy, make_store: MakeStore, operation: str
) -> None:
    store = make_store()
    proxy.rule = lambda _: OtherWords(TRUNCATED[operation])
    listing = store.list("") if operation == "ListObjectsV2" else store.unfinished_uploads("")

    with pytest.raises(BucketUnavailableError, match="more follows, and has no Next"):
        list(listing)


@pytest.mark.parametrize(
    "entry",
    [b"<Size>many</Size>", b"<Size>1</Size><LastModified>soon</LastModified>", b"<Size>1</Size", b"<Size/>"],
)
def test_listing_that_cannot_be_parsed_is_worth_a_retry(
    proxy: FaultProxy, make_store: MakeStore, entry: bytes
) -> None:
    store = make_store()
    proxy.rule = lambda _: OtherWords(
        b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key>"
        + entry
        + b"</Contents></ListBucketResult>"
    )

    with pytest.raises(BucketUnavailableError):
        list(store.list(""))


def test_request_is_sent_as_often_as_configured(proxy: FaultProxy, make_store: MakeStore) -> None:
    store = make_store(max_attempts=3)
    store.write("k", DATA)
    proxy.rule = lambda request: SLOW_DOWN if request.gets and request.count < 3 else None

    assert b"".join(store.read("k")) == DATA
    assert proxy.requests["GET", "k"] == 3


def test_connection_that_the_server_closed_meanwhile_is_no_failure(
    proxy: FaultProxy, store: S3ObjectStore, own_s3: S3Server
) -> None:
    config = S3Config(
        endpoint_url=own_s3.endpoint_url,
        bucket="bucket",
        access_key_id=own_s3.access_key,
        secret_access_key=Secret(own_s3.secret_key),
        max_attempts=1,
    )
    direct = S3ObjectStore(config)
    direct.ensure_bucket()
    direct.write("k", b"1")
    assert b"".join(direct.read("k")) == b"1"

    own_s3.stop()
    own_s3.start()

    assert b"".join(direct.read("k")) == b"1"
    direct.close()


def test_many_are_deleted_a_thousand_at_a_time_with_the_md5_that_old_servers_want(
    proxy: FaultProxy, store: S3ObjectStore
) -> None:
    asked: list[ProxiedRequest] = []
    proxy.rule = asked.append  # type: ignore[func-returns-value]

    store.delete_many([*(f"never/{number}" for number in range(1000)), "k"])

    assert [(request.method, "delete" in request.query) for request in asked] == [("POST", True)] * 2
    assert all("content-md5" in request.headers for request in asked)
    assert store.size("k") is None


def test_server_that_cannot_delete_many_is_asked_one_by_one(proxy: FaultProxy, store: S3ObjectStore) -> None:
    store.write("l", b"1")
    proxy.rule = lambda request: Fail(501, "NotImplemented") if "delete" in request.query else None

    store.delete_many(["k", "l"])

    assert list(store.list("")) == []
    assert proxy.requests["DELETE", "k"] == proxy.requests["DELETE", "l"] == 1


def test_failure_within_a_batch_of_deletions_is_told(proxy: FaultProxy, store: S3ObjectStore) -> None:
    proxy.rule = lambda request: SLOW_DOWN if "delete" in request.query else None

    with pytest.raises(BucketUnavailableError):
        store.delete_many(["k"])

    assert store.size("k") == len(DATA)


def test_stale_listing_is_what_was_there_first(proxy: FaultProxy, store: S3ObjectStore) -> None:
    assert [info.key for info in store.list("")] == ["k"]
    store.write("l", b"1")
    proxy.rule = lambda _: StaleListing()

    assert [info.key for info in store.list("")] == ["k"]

    proxy.rule = no_fault
    assert [info.key for info in store.list("")] == ["k", "l"]


def test_proxy_makes_wrong_bytes_of_the_right_length_and_counts(
    proxy: FaultProxy, store: S3ObjectStore
) -> None:
    proxy.rule = on_gets(WrongBytes(MIB))

    got = b"".join(store.read("k"))

    assert [at for at in range(len(DATA)) if got[at] != DATA[at]] == [MIB]
    assert proxy.requests["GET", "k"] == 1
    assert proxy.body_bytes["k"] == len(DATA)
    assert proxy.uploaded_bytes["k"] == len(DATA)


def test_random_faults_never_give_wrong_bytes_that_the_answer_owned_up_to(
    proxy: FaultProxy, store: S3ObjectStore, tmp_path: Path
) -> None:
    lies = (WrongBytes, StaleListing)  # only a digest finds these
    honest = [
        fault
        for fault in USUAL_FAULTS
        if not isinstance(fault, lies) and not (isinstance(fault, WrongRange) and not fault.says_so)
    ]
    proxy.rule = RandomFaults(seed=7, rate=0.5, faults=honest, only=lambda request: request.gets)
    failures: list[str] = []
    done: list[int] = []

    def work(number: int) -> None:
        dice = random.Random(number)
        with (tmp_path / f"file-{number}").open("w+b") as file:
            for _ in range(40):
                start, size = dice.randrange(len(DATA)), dice.randrange(1, 400_000)
                size = min(size, len(DATA) - start)
                try:
                    store.copy("k", file.fileno(), start=start, size_bytes=size, on_progress=nothing)
                    read = b"".join(store.read("k", start=start, size_bytes=size))
                except BlobSyncError:
                    continue
                done.append(size)
                if os.pread(file.fileno(), size, start) != DATA[start : start + size]:
                    failures.append(f"copy {start}+{size}")
                if read != DATA[start : start + size]:
                    failures.append(f"read {start}+{size}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(done) > 10
    assert sum(proxy.faults.values()) > 50


def test_random_faults_are_the_same_for_the_same_seed() -> None:
    request = ProxiedRequest("GET", "b", "k", {}, None, None, 1)

    def thrown(seed: int) -> list[Fault | None]:
        rule = RandomFaults(seed, 0.5)
        return [rule(request) for _ in range(100)]

    assert thrown(1) == thrown(1) != thrown(2)
    assert 20 < sum(fault is not None for fault in thrown(1)) < 80
