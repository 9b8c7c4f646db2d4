"""A store of the shared S3 server, and a second server, which verifies conditions, but no MD5."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from blobsync import S3Config, S3ObjectStore, Secret
from nimbus.localstack.s3 import S3Server
from tests.conftest import LongLived


@pytest.fixture
def s3_config(s3_server: S3Server, s3_bucket: str) -> S3Config:
    """How to reach this test's own bucket."""
    return S3Config(
        endpoint_url=s3_server.endpoint_url,
        bucket=s3_bucket,
        access_key_id=s3_server.access_key,
        secret_access_key=Secret(s3_server.secret_key),
    )


@pytest.fixture
def store(s3_config: S3Config) -> Iterator[S3ObjectStore]:
    """This test's own bucket."""
    made = S3ObjectStore(s3_config)
    yield made
    made.close()


@pytest.fixture(scope="session")
def moto_endpoint(long_lived: LongLived) -> Iterator[str]:
    """The URL of moto's server, on a thread. Use a bucket of your own."""
    before = set(threading.enumerate())
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    long_lived.threads |= set(threading.enumerate()) - before
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
