"""An external Spark Connect server is used over TLS, with a token."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from nimbus.worker.connect.server import RemoteServer
from nimbus.worker.connect.session import answers

ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


class FakeServer(base_pb2_grpc.SparkConnectServiceServicer):
    """A server that only implements sessions."""

    def _check(self, context: grpc.ServicerContext) -> None:
        if ("authorization", "Bearer t0ken") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")

    def Config(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - gRPC's name
        self._check(context)
        return base_pb2.ConfigResponse(session_id=request.session_id, server_side_session_id="there")

    def Interrupt(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._check(context)
        return base_pb2.InterruptResponse(session_id=request.session_id)

    def ReleaseSession(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._check(context)
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """Port of a server whose certificate is in `ca.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "connect")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    (tmp_path / "ca.pem").write_bytes(certificate)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with ThreadPoolExecutor(2) as pool:
        running = grpc.server(pool)
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(FakeServer(), running)
        port = running.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(private, certificate)]))
        running.start()
        yield port
        running.stop(None).wait(60)


@pytest.mark.parametrize(
    ("roots", "token", "answered"), [(True, "t0ken", True), (True, "other", False), (False, "t0ken", False)]
)
def test_remote_server_answers_by_tls_to_who_trusts_it_and_has_the_token(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roots: bool, token: str, answered: bool
) -> None:
    if roots:
        monkeypatch.setenv(ROOTS, str(tmp_path / "ca.pem"))

    assert answers(RemoteServer(f"sc://127.0.0.1:{server}", token).plan()) is answered
