"""Reading over TLS, from a server that ignores ranges; certificates are checked."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from blobsync import BucketUnavailableError, S3Config, S3ObjectStore, Secret

DATA = os.urandom(2_000_000)


class Whole(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, *_: object) -> None:
        """Ignore clients that close connections: they are part of the test."""


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    file = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    running = Server(("127.0.0.1", 0), Whole)
    running.socket = context.wrap_socket(running.socket, server_side=True)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{running.server_address[1]}", file
    running.shutdown()
    thread.join()
    running.server_close()


def make(endpoint: str, ca_bundle: str | None) -> S3ObjectStore:
    return S3ObjectStore(
        S3Config(
            endpoint_url=endpoint,
            bucket="bucket",
            access_key_id="a",
            secret_access_key=Secret("s"),
            ca_bundle=ca_bundle,
            max_attempts=1,
        )
    )


def test_objects_are_read_over_tls_whole_and_in_ranges(server: tuple[str, Path], tmp_path: Path) -> None:
    endpoint, bundle = server
    store = make(endpoint, str(bundle))

    assert b"".join(store.read("k")) == DATA
    assert b"".join(store.read("k", start=1_000_000, size_bytes=300_000)) == DATA[1_000_000:1_300_000]
    with (tmp_path / "file").open("w+b") as file:
        store.copy("k", file.fileno(), start=500_000, size_bytes=1_500_000, on_progress=lambda _: None)
        assert os.pread(file.fileno(), 2_000_000, 500_000) == DATA[500_000:]
    store.close()


def test_certificate_that_is_not_trusted_is_refused(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, bundle = server
    store = make(endpoint, None)
    with pytest.raises(BucketUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        b"".join(store.read("k"))
    store.close()

    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    store = make(endpoint, None)
    assert len(b"".join(store.read("k"))) == len(DATA)
    store.close()
