"""A second S3 server, which differs from `s3_server`: it verifies conditions, but no MD5."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from tests.conftest import LongLived


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
