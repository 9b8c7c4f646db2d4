"""The contract of every `DataPlace`: a folder, and a bucket on the shipped fake and on two real servers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from blobsync import ObjectStore, S3Config, S3ObjectStore, Secret
from blobsync.testing.memory import MemoryObjectStore
from nimbus.localstack.s3 import S3Server
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.places import FolderPlace
from nimbus.worker.data.ports import DataPlace, InputRefusedError

OUTPUT = "sums/run1/load/1"


@pytest.fixture(scope="module")
def moto_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@dataclass
class Site:
    """A place, seen from two hosts: one writes, the other reads."""

    writer: DataPlace
    reader: DataPlace
    own: Path
    published: bool = False

    def write(self, files: dict[str, bytes], output: str = OUTPUT) -> str:
        """Write an output like an attempt. Returns its reference."""
        prefix = self.writer.prefix(output)
        folder = self.writer.output(output, self.own / uuid.uuid4().hex)
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return self.writer.commit(folder, prefix, published=self.published)

    def read(self, reference: str) -> dict[str, bytes]:
        """Read an output like a worker, and then like a task that needs it."""
        self.reader.fetch(reference)
        assert self.reader.is_here(reference)
        top = self.reader.input(reference)
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def s3(endpoint: str, key: str, secret: str) -> S3ObjectStore:
    config = S3Config(
        endpoint_url=endpoint,
        bucket=f"b-{uuid.uuid4().hex}",
        prefix="some/data",
        access_key_id=key,
        secret_access_key=Secret(secret),
    )
    store = S3ObjectStore(config)
    store.ensure_bucket()
    return store


@pytest.fixture(params=["folder", "published", "memory", "rclone", "moto"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server, moto_endpoint: str
) -> Iterator[Site]:
    if request.param in ("folder", "published"):
        writer, reader = FolderPlace(tmp_path / "data"), FolderPlace(tmp_path / "data")
        yield Site(writer, reader, tmp_path / "own", published=request.param == "published")
        return
    store: ObjectStore = MemoryObjectStore()
    if request.param == "rclone":
        store = s3(s3_server.endpoint_url, s3_server.access_key, s3_server.secret_key)
    elif request.param == "moto":
        store = s3(moto_endpoint, "any", "thing")
    hosts = [BucketPlace("s3://b/some/data", tmp_path / host, lambda: store) for host in ("h1", "h2")]
    yield Site(hosts[0], hosts[1], tmp_path / "own")
    if isinstance(store, S3ObjectStore):
        store.close()


FILES = {
    "report.md": b"# all",
    "data/part-00000-7d.snappy.parquet": os.urandom(300_000),
    "data/_SUCCESS": b"",
    "data/.part.crc": b"crc",
    "deep/er/with space+%.csv": b"1,2",
}


def test_output_is_read_as_it_was_committed(site: Site) -> None:
    reference = site.write(FILES)

    assert site.read(reference) == FILES


def test_empty_output_is_an_empty_folder(site: Site) -> None:
    assert site.read(site.write({})) == {}


def test_empty_folder_of_an_output_is_kept(site: Site) -> None:
    prefix = site.writer.prefix(OUTPUT)
    output = site.writer.output(OUTPUT, site.own)
    (output / "a" / "empty").mkdir(parents=True)

    reference = site.writer.commit(output, prefix)

    site.reader.fetch(reference)
    assert (site.reader.input(reference) / "a" / "empty").is_dir()


def test_reference_is_relative_and_names_the_attempt(site: Site) -> None:
    reference = site.write({"x": b"1"})

    assert reference.startswith(OUTPUT)
    assert site.writer.uri.partition("://")[0] in {"file", "s3"}


def test_outputs_of_two_attempts_are_never_mixed(site: Site) -> None:
    one = site.write({"a": b"1", "b": b"1"}, "sums/run1/load/1")
    two = site.write({"a": b"2"}, "sums/run1/load/2")

    assert site.read(two) == {"a": b"2"}
    assert site.read(one) == {"a": b"1", "b": b"1"}


def test_fetch_is_safe_to_repeat(site: Site) -> None:
    reference = site.write(FILES)

    site.reader.fetch(reference)

    assert site.read(reference) == FILES


def test_reference_of_another_kind_of_place_is_refused(site: Site) -> None:
    manifest = f"sums/run1/load/1-0011223344556677/manifest-{'0' * 64}.json"
    of_another_kind = manifest if site.writer.uri.startswith("file") else OUTPUT

    with pytest.raises(InputRefusedError, match=r"worker\.data"):
        site.reader.fetch(of_another_kind)
