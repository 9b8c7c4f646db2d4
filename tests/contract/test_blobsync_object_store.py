"""What every `ObjectStore` promises, on the shipped fake and on two real servers over HTTP."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from blobsync import (
    BlobNotFoundError,
    BucketMissingError,
    InvalidKeyError,
    ObjectStore,
    S3Config,
    S3ObjectStore,
    Secret,
    StoreAccessDeniedError,
    StoreUnavailableError,
)
from blobsync.storage.ports import CHUNK_BYTES
from blobsync.testing.memory import MemoryObjectStore
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server


@dataclass(frozen=True)
class Place:
    """Somewhere to make stores; None: in memory."""

    config: S3Config | None


@pytest.fixture(scope="module")
def moto_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def rclone_config(s3_server: S3Server) -> S3Config:
    return S3Config(
        endpoint_url=s3_server.endpoint_url,
        bucket=f"b-{uuid.uuid4().hex}",
        prefix="some/prefix",
        access_key_id=s3_server.access_key,
        secret_access_key=Secret(s3_server.secret_key),
    )


@pytest.fixture
def moto_config(moto_endpoint: str) -> S3Config:
    return S3Config(
        endpoint_url=moto_endpoint,
        bucket=f"b-{uuid.uuid4().hex}",
        access_key_id="any",
        secret_access_key=Secret("thing"),
    )


@pytest.fixture(params=["memory", "rclone", "moto"])
def store(
    request: pytest.FixtureRequest, rclone_config: S3Config, moto_config: S3Config
) -> Iterator[ObjectStore]:
    if request.param == "memory":
        yield MemoryObjectStore()
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


@pytest.mark.parametrize("size", [0, 1, 100, CHUNK_BYTES, 3 * CHUNK_BYTES + 17])
def test_object_comes_back_as_it_was_written(store: ObjectStore, size: int) -> None:
    data = bytes(index % 251 for index in range(size))

    store.write("blobs/abc", data)

    assert content(store, "blobs/abc") == data
    assert store.size("blobs/abc") == size


def test_reading_gives_bounded_chunks(store: ObjectStore) -> None:
    store.write("k", b"x" * (2 * CHUNK_BYTES + 1))

    assert max(len(chunk) for chunk in store.read("k")) <= CHUNK_BYTES


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


def test_listing_goes_on_beyond_one_page(store: ObjectStore) -> None:
    wanted = [f"many/{number:04d}" for number in range(1003)]  # a page has 1,000
    for key in wanted:
        store.write(key, b"1")

    assert [info.key for info in store.list("many/")] == wanted


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
        with pytest.raises(StoreAccessDeniedError) as refused:
            call()
        words = str(refused.value)
        assert rclone_config.bucket in words
        assert str(rclone_config.endpoint_url) in words
        assert str(rclone_config.access_key_id) in words
        assert "not-the-secret" not in words


def test_unknown_access_key_is_denied(
    rclone_config: S3Config, make_s3: Callable[[S3Config], S3ObjectStore]
) -> None:
    with pytest.raises(StoreAccessDeniedError):
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

    with pytest.raises(StoreUnavailableError, match=endpoint) as failed:
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


def test_fake_breaks_off_a_truncated_read_as_a_dropped_connection_does() -> None:
    fake = MemoryObjectStore()
    fake.write("k", b"0123456789")
    fake.truncate("k", 4)

    got = []
    with pytest.raises(StoreUnavailableError):
        got.extend(fake.read("k"))

    assert got == [b"0123"]
