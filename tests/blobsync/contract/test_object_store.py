"""The contract of every `ObjectStore`, on the shipped fake and on two real servers over HTTP."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobNotFoundError,
    BucketAccessDeniedError,
    BucketMissingError,
    BucketUnavailableError,
    InvalidKeyError,
    LocalStoreError,
    ObjectStore,
    S3Config,
    S3ObjectStore,
    Secret,
)
from blobsync.bucket.ports import PIECE_BYTES
from blobsync.testing.memory import MemoryObjectStore
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server

PART = 5 << 20  # the smallest part that S3 accepts
LARGE = bytes(range(256)) * (2 * PART // 256) + b"and a last part"


def nothing(_size_bytes: int) -> None:
    """Ignore the progress."""


@pytest.fixture
def rclone_config(s3_server: S3Server) -> S3Config:
    return S3Config(
        endpoint_url=s3_server.endpoint_url,
        bucket=f"b-{uuid.uuid4().hex}",
        prefix="some/prefix",
        access_key_id=s3_server.access_key,
        secret_access_key=Secret(s3_server.secret_key),
        multipart_bytes=PART,
        part_bytes=PART,
    )


@pytest.fixture
def moto_config(moto_endpoint: str) -> S3Config:
    return S3Config(
        endpoint_url=moto_endpoint,
        bucket=f"b-{uuid.uuid4().hex}",
        access_key_id="any",
        secret_access_key=Secret("thing"),
        multipart_bytes=PART,
        part_bytes=PART,
    )


@pytest.fixture(params=["memory", "rclone", "moto"])
def store(
    request: pytest.FixtureRequest, rclone_config: S3Config, moto_config: S3Config
) -> Iterator[ObjectStore]:
    if request.param == "memory":
        yield MemoryObjectStore(multipart_bytes=PART)
        return
    s3 = S3ObjectStore(rclone_config if request.param == "rclone" else moto_config)
    s3.ensure_bucket()
    yield s3
    s3.close()


@pytest.fixture
def make_s3() -> Iterator[Callable[[S3Config], S3ObjectStore]]:
    made: list[S3ObjectStore] = []

    def make(config: S3Config) -> S3ObjectStore:
        made.append(S3ObjectStore(config))
        return made[-1]

    yield make
    for s3 in made:
        s3.close()


def content(store: ObjectStore, key: str) -> bytes:
    return b"".join(store.read(key))


def test_usable_store_is_checked_without_a_change(store: ObjectStore) -> None:
    store.check()

    assert list(store.list("")) == []


def test_closing_may_be_repeated(store: ObjectStore) -> None:
    store.write("k", b"1")
    content(store, "k")

    store.close()
    store.close()


@pytest.mark.parametrize("size", [0, 1, 100, PIECE_BYTES, 3 * PIECE_BYTES + 17])
def test_object_comes_back_as_it_was_written(store: ObjectStore, size: int) -> None:
    data = bytes(index % 251 for index in range(size))

    store.write("blobs/abc", data)

    assert content(store, "blobs/abc") == data
    assert store.size("blobs/abc") == size


def test_reading_gives_bounded_chunks(store: ObjectStore) -> None:
    store.write("k", b"x" * (2 * PIECE_BYTES + 1))

    assert max(len(chunk) for chunk in store.read("k")) <= PIECE_BYTES


def test_file_is_written_as_its_bytes_are(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in a file" * 1000)

    store.write("k", tmp_path / "file")

    assert content(store, "k") == b"in a file" * 1000


def test_writing_again_replaces(store: ObjectStore) -> None:
    store.write("k", b"old and longer")
    store.write("k", b"new")

    assert content(store, "k") == b"new"
    assert store.size("k") == 3


def test_missing_object_has_no_size_and_cannot_be_read(store: ObjectStore) -> None:
    assert store.size("nobody/wrote/this") is None
    with pytest.raises(BlobNotFoundError, match="nobody/wrote/this"):
        content(store, "nobody/wrote/this")


def test_deleting_removes_and_may_be_repeated(store: ObjectStore) -> None:
    store.write("k", b"1")

    store.delete("k")
    store.delete("k")

    assert store.size("k") is None


def test_listing_gives_keys_and_sizes_below_a_prefix_in_order(store: ObjectStore) -> None:
    for key in ("b/2", "a/1", "b/10", "b/1", "c"):
        store.write(key, key.encode())

    assert [(info.key, info.size_bytes) for info in store.list("b/")] == [("b/1", 3), ("b/10", 4), ("b/2", 3)]
    assert [info.key for info in store.list("")] == ["a/1", "b/1", "b/10", "b/2", "c"]


def test_listing_starts_after_a_key(store: ObjectStore) -> None:
    for key in ("l/1", "l/2", "l/3"):
        store.write(key, b"1")

    assert [info.key for info in store.list("l/", start_after="l/1")] == ["l/2", "l/3"]


def test_listing_nothing_is_empty(store: ObjectStore) -> None:
    assert list(store.list("nothing/here/")) == []


def test_listing_goes_on_beyond_one_page(
    store: ObjectStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "40")  # a page of the other server has 1,000
    is_moto = request.node.callspec.params["store"] == "moto"
    wanted = [f"many/{number:04d}" for number in range(83 if is_moto else 1003)]
    for key in wanted:
        store.write(key, b"1")

    assert [info.key for info in store.list("many/")] == wanted


@pytest.mark.parametrize(
    ("start", "size_bytes"),
    [(0, 1), (0, 10), (3, 4), (9, 1), (3, None), (0, None), (8, 100), (0, 100), (5, 0)],
)
def test_range_gives_its_bytes_and_is_cut_where_the_object_ends(
    store: ObjectStore, start: int, size_bytes: int | None
) -> None:
    store.write("k", b"0123456789")

    got = b"".join(store.read("k", start=start, size_bytes=size_bytes))

    assert got == b"0123456789"[start : None if size_bytes is None else start + size_bytes]


@pytest.mark.parametrize(("start", "size_bytes"), [(10, 1), (10, None), (11, 5), (1000, None)])
def test_range_beyond_the_end_is_empty(store: ObjectStore, start: int, size_bytes: int | None) -> None:
    store.write("k", b"0123456789")
    store.write("empty", b"")

    assert b"".join(store.read("k", start=start, size_bytes=size_bytes)) == b""
    assert b"".join(store.read("empty", size_bytes=5)) == b""


def test_range_of_a_missing_object_is_missing(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(BlobNotFoundError):
        list(store.read("nobody", start=3, size_bytes=2))
    with (tmp_path / "file").open("wb") as file, pytest.raises(BlobNotFoundError):
        store.copy("nobody", file.fileno(), start=3, size_bytes=2, on_progress=nothing)


def test_negative_range_is_a_defect_of_the_caller(store: ObjectStore) -> None:
    with pytest.raises(ValueError, match="negative"):
        list(store.read("k", start=-1))
    with pytest.raises(ValueError, match="negative"):
        list(store.read("k", size_bytes=-1))


@pytest.mark.parametrize(
    ("start", "size_bytes"), [(0, 3 * PIECE_BYTES + 17), (PIECE_BYTES - 1, PIECE_BYTES + 2), (5, 1)]
)
def test_copy_writes_a_range_at_its_offset_and_tells_every_piece(
    store: ObjectStore, tmp_path: Path, start: int, size_bytes: int
) -> None:
    data = os.urandom(3 * PIECE_BYTES + 17)
    store.write("k", data)
    told: list[int] = []
    before = b"\xff" * len(data)
    (tmp_path / "file").write_bytes(before)

    with (tmp_path / "file").open("r+b") as file:
        store.copy("k", file.fileno(), start=start, size_bytes=size_bytes, on_progress=told.append)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 0

    end = start + size_bytes
    assert (tmp_path / "file").read_bytes() == before[:start] + data[start:end] + before[end:]
    assert sum(told) == size_bytes
    assert max(told) <= PIECE_BYTES


def test_several_threads_fill_one_file(store: ObjectStore, tmp_path: Path) -> None:
    data, step = os.urandom(4 * PIECE_BYTES), PIECE_BYTES // 2
    store.write("k", data)
    with (tmp_path / "file").open("wb") as file:
        threads = [
            threading.Thread(
                target=lambda at=at: store.copy(  # type: ignore[misc]
                    "k", file.fileno(), start=at, size_bytes=step, on_progress=nothing
                )
            )
            for at in range(0, len(data), step)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert (tmp_path / "file").read_bytes() == data


def test_copy_of_more_than_there_is_is_unavailable(store: ObjectStore, tmp_path: Path) -> None:
    store.write("k", b"0123456789")
    with (tmp_path / "file").open("wb") as file:
        for start, size_bytes in ((0, 11), (5, 6), (10, 1), (50, 1)):
            with pytest.raises(BucketUnavailableError):
                store.copy("k", file.fileno(), start=start, size_bytes=size_bytes, on_progress=nothing)


def test_copy_stops_when_told_and_the_store_goes_on_working(store: ObjectStore, tmp_path: Path) -> None:
    store.write("k", os.urandom(3 * PIECE_BYTES))

    def stop(size_bytes: int) -> None:
        if size_bytes:
            raise InterruptedError("enough")

    with (tmp_path / "file").open("wb") as file, pytest.raises(InterruptedError, match="enough"):
        store.copy("k", file.fileno(), start=0, size_bytes=3 * PIECE_BYTES, on_progress=stop)

    assert len(content(store, "k")) == 3 * PIECE_BYTES


def test_file_that_cannot_be_written_is_a_local_fault(store: ObjectStore, tmp_path: Path) -> None:
    store.write("k", os.urandom(2 * PIECE_BYTES))
    (tmp_path / "file").touch()

    with (tmp_path / "file").open("rb") as read_only, pytest.raises(LocalStoreError):
        store.copy("k", read_only.fileno(), start=0, size_bytes=2 * PIECE_BYTES, on_progress=nothing)

    assert len(content(store, "k")) == 2 * PIECE_BYTES


def test_reading_may_be_left_in_the_middle(store: ObjectStore) -> None:
    store.write("k", os.urandom(3 * PIECE_BYTES))

    for _ in range(3):
        next(store.read("k"))

    assert len(content(store, "k")) == 3 * PIECE_BYTES


def test_listing_tells_when_objects_were_written(store: ObjectStore) -> None:
    slack = timedelta(seconds=2)  # some stores keep whole seconds
    before = datetime.now(UTC)
    store.write("k", b"1")
    after = datetime.now(UTC)

    (info,) = store.list("")

    assert info.modified.utcoffset() == timedelta(0)
    assert before - slack <= info.modified <= after + slack


def test_many_are_deleted_at_once_missing_ones_too(store: ObjectStore) -> None:
    for number in range(12):
        store.write(f"d/{number:02d}", b"1")

    store.delete_many([f"d/{number:02d}" for number in range(10)] + ["d/nobody"])
    store.delete_many(["d/00"])
    store.delete_many([])

    assert [info.key for info in store.list("d/")] == ["d/10", "d/11"]


def test_batch_with_an_invalid_key_deletes_nothing(store: ObjectStore) -> None:
    store.write("k", b"1")

    with pytest.raises(InvalidKeyError):
        store.delete_many(["k", "../up"])

    assert store.size("k") == 1


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_large_object_comes_back_as_it_was_written(store: ObjectStore, tmp_path: Path, kind: str) -> None:
    told: list[int] = []
    (tmp_path / "file").write_bytes(LARGE)

    store.write("large", LARGE if kind == "bytes" else tmp_path / "file", on_progress=told.append)

    assert content(store, "large") == LARGE
    assert sum(told) == len(LARGE)
    assert list(store.unfinished_uploads("")) == []


def test_upload_that_is_stopped_shows_nothing_and_may_be_taken_up_or_abandoned(
    store: ObjectStore, tmp_path: Path
) -> None:
    def stop(size_bytes: int) -> None:
        if size_bytes:
            raise InterruptedError("enough")

    (tmp_path / "file").write_bytes(LARGE)
    for key in ("u/one", "u/other", "v"):
        with pytest.raises(InterruptedError, match="enough"):
            store.write(key, tmp_path / "file", on_progress=stop)

    assert list(store.list("")) == []
    assert sorted(upload.key for upload in store.unfinished_uploads("u/")) == ["u/one", "u/other"]

    store.write("u/one", tmp_path / "file")

    assert content(store, "u/one") == LARGE
    assert store.abandon_uploads("u/", timedelta(days=100_000)) == 0
    assert store.abandon_uploads("u/", timedelta(0)) == 1
    assert [upload.key for upload in store.unfinished_uploads("")] == ["v"]
    assert store.abandon_uploads("", timedelta(0)) == 1
    assert store.abandon_uploads("", timedelta(0)) == 0


@pytest.mark.parametrize("store", ["memory", "rclone"], indirect=True)  # moto reports 2010 for every upload
def test_upload_is_as_old_as_it_is(store: ObjectStore) -> None:
    def stop(_size_bytes: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        store.write("u", LARGE, on_progress=stop)

    (upload,) = store.unfinished_uploads("")
    assert timedelta(0) <= upload.age < timedelta(minutes=5)
    assert store.abandon_uploads("", timedelta(minutes=5)) == 0


def test_missing_file_cannot_be_written(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(LocalStoreError, match="nothing-here"):
        store.write("k", tmp_path / "nothing-here")

    assert store.size("k") is None


@pytest.mark.parametrize("key", ["", "/abs", "a//b", "../up", "a/../b", "a/./b", "a\\b", "a\0b", "x" * 2000])
def test_key_that_servers_disagree_about_is_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(InvalidKeyError):
        store.write(key, b"1")
    with pytest.raises(InvalidKeyError):
        content(store, key)


def test_many_threads_use_one_store(store: ObjectStore) -> None:
    failures: list[str] = []

    def use(number: int) -> None:
        data = str(number).encode() * 1000
        store.write(f"t/{number}", data)
        if content(store, f"t/{number}") != data:
            failures.append(f"t/{number}")

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(list(store.list("t/"))) == 8


def test_wrong_secret_is_told_with_what_to_check(
    rclone_config: S3Config, make_s3: Callable[[S3Config], S3ObjectStore]
) -> None:
    make_s3(rclone_config).ensure_bucket()
    wrong = make_s3(replace(rclone_config, secret_access_key=Secret("not-the-secret")))

    for call in (
        wrong.check,
        lambda: wrong.write("k", b"1"),
        lambda: content(wrong, "k"),
        wrong.ensure_bucket,
    ):
        with pytest.raises(BucketAccessDeniedError) as refused:
            call()
        words = str(refused.value)
        assert rclone_config.bucket in words
        assert str(rclone_config.endpoint_url) in words
        assert str(rclone_config.access_key_id) in words
        assert "not-the-secret" not in words


def test_unknown_access_key_is_denied(
    rclone_config: S3Config, make_s3: Callable[[S3Config], S3ObjectStore]
) -> None:
    with pytest.raises(BucketAccessDeniedError):
        make_s3(replace(rclone_config, access_key_id="somebody-else")).check()


@pytest.mark.parametrize("server", ["rclone_config", "moto_config"])
def test_missing_bucket_is_told_apart_from_a_missing_object(
    server: str, request: pytest.FixtureRequest, make_s3: Callable[[S3Config], S3ObjectStore]
) -> None:
    s3 = make_s3(request.getfixturevalue(server))

    for call in (s3.check, lambda: content(s3, "k"), lambda: s3.write("k", b"1"), lambda: list(s3.list(""))):
        with pytest.raises(BucketMissingError):
            call()


@pytest.mark.parametrize("server", ["rclone_config", "moto_config"])
def test_bucket_can_be_ensured_twice_and_is_checked(
    server: str, request: pytest.FixtureRequest, make_s3: Callable[[S3Config], S3ObjectStore]
) -> None:
    s3 = make_s3(request.getfixturevalue(server))

    s3.ensure_bucket()
    s3.ensure_bucket()

    s3.check()


def test_nobody_listening_is_unavailable_and_worth_a_retry(
    make_s3: Callable[[S3Config], S3ObjectStore],
) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    s3 = make_s3(
        S3Config(
            endpoint_url=endpoint,
            bucket="b",
            access_key_id="a",
            secret_access_key=Secret("s"),
            max_attempts=1,
        )
    )

    with pytest.raises(BucketUnavailableError, match=endpoint) as failed:
        s3.check()
    assert failed.value.retryable


def test_prefixes_keep_stores_of_one_bucket_apart(
    rclone_config: S3Config, make_s3: Callable[[S3Config], S3ObjectStore]
) -> None:
    one, other = (
        make_s3(replace(rclone_config, prefix="one")),
        make_s3(replace(rclone_config, prefix="other")),
    )
    one.ensure_bucket()

    one.write("k", b"1")

    assert other.size("k") is None
    assert list(other.list("")) == []
    assert [info.key for info in one.list("", start_after="a")] == ["k"]


def test_fake_that_is_unavailable_does_not_pass_its_check() -> None:
    fake = MemoryObjectStore()
    fake.unavailable = True

    with pytest.raises(BucketUnavailableError):
        fake.check()


def test_fake_breaks_off_a_truncated_read_as_a_dropped_connection_does() -> None:
    fake = MemoryObjectStore()
    fake.write("k", b"0123456789")
    fake.truncate("k", 4)

    got = []
    with pytest.raises(BucketUnavailableError):
        got.extend(fake.read("k"))

    assert got == [b"0123"]
