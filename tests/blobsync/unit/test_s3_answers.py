"""Answers to boto3 that lack a field."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from blobsync import BucketUnavailableError, S3Config, S3ObjectStore, Secret


class WithoutLength(BaseHTTPRequestHandler):
    """A gateway that compresses answers, and so leaves out their length."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), WithoutLength)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_size_of_an_object_whose_length_is_not_told_is_not_known(endpoint: str) -> None:
    store = S3ObjectStore(
        S3Config(
            endpoint_url=endpoint,
            bucket="b",
            access_key_id="a",
            secret_access_key=Secret("s"),
            max_attempts=1,
        )
    )
    with pytest.raises(BucketUnavailableError, match="ContentLength"):
        store.size("k")
    store.close()
