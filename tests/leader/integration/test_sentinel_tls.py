"""The sentinel with a server that requires TLS and a certificate. The server is simulated, TLS is real."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from leader.sentinel import wire
from leader.sentinel.ensemble import CLOSED, Ensemble, Tls
from leader.sentinel.program import clock
from leader.sentinel.wire import Handoff

HANDOFF = Handoff(0x1234, b"p" * 16, 4000)


def certificate(folder: Path, name: str) -> tuple[str, str]:
    """A self-signed certificate of 127.0.0.1 and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(files[0]), str(files[1])


class Server:
    """Answers connections like ZooKeeper, one after the other."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.closed: list[int] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                with plain, self._context.wrap_socket(plain, server_side=True) as connection:
                    self._answer(connection)
            except OSError:  # client or server does not trust the other
                continue

    def _answer(self, connection: ssl.SSLSocket) -> None:
        request = connection.recv(1024)
        session_id: int = struct.unpack_from(">q", request, 20)[0]
        connection.sendall(wire.frame(struct.pack(">iiqi", 0, 4000, session_id, 16) + bytes(17)))
        if connection.recv(1024) == wire.close_request():
            self.closed.append(session_id)
            connection.sendall(wire.frame(struct.pack(">iqi", wire.CLOSE_XID, 1, 0)))

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)


@pytest.fixture
def ours(tmp_path: Path) -> tuple[str, str]:
    return certificate(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> tuple[str, str]:
    return certificate(tmp_path, "theirs")


@pytest.fixture
def server(ours: tuple[str, str], theirs: tuple[str, str]) -> Iterator[Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ours[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*theirs)
    made = Server(context)
    yield made
    made.stop()


def test_session_is_closed_over_tls_with_a_certificate_of_ours(
    server: Server, ours: tuple[str, str], theirs: tuple[str, str]
) -> None:
    ensemble = Ensemble(f"127.0.0.1:{server.port}", Tls(theirs[0], *ours), clock)

    assert ensemble.close(HANDOFF, 5.0) == CLOSED
    assert server.closed == [HANDOFF.session_id]


def test_server_that_is_not_trusted_is_told_nothing(server: Server, ours: tuple[str, str]) -> None:
    ensemble = Ensemble(f"127.0.0.1:{server.port}", Tls(*ours[:1], *ours), clock)

    assert ensemble.close(HANDOFF, 5.0) is None
    assert server.closed == []


def test_server_is_asked_whatever_its_certificate_when_the_configuration_says_so(
    server: Server, ours: tuple[str, str]
) -> None:
    ensemble = Ensemble(f"127.0.0.1:{server.port}", Tls("-", *ours, verify="none"), clock)

    assert ensemble.close(HANDOFF, 5.0) == CLOSED


def test_file_that_is_missing_is_noticed_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Ensemble("127.0.0.1:1", Tls(str(tmp_path / "nothing.pem")), clock)
