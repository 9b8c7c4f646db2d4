"""The API over TLS, with real handshakes: certificates are replaced under load, and wrong pairs refused."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse
from structlog.testing import capture_logs

from nimbus.api.server import ApiServer
from nimbus.api.tls import CertificateError, ReloadingTls
from nimbus.cli.doctor import Level, host
from tests.leader.integration.test_tls import Authority

Eventually = Callable[..., None]


def put(place: Path, made: Path) -> None:
    """Replace a file atomically, as certificate clients do."""
    part = place.with_suffix(".part")
    part.write_bytes(made.read_bytes())
    part.replace(place)


@dataclass
class Served:
    """An API over TLS, which uses certificate `one` first. `other` is of the same authority."""

    authority: Authority
    one: Path
    other: Path
    place: Path
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def start(self) -> ApiServer:
        self.install(self.one, self.one)
        self.tls = ReloadingTls(self.place / "api.pem", self.place / "api.key", self.registry)
        app = FastAPI()
        app.get("/healthz")(lambda: {"id": "s1"})
        app.mount("/", PlainTextResponse("hello"))
        server = ApiServer(app, tls=self.tls.context)
        server.start()
        return server

    def install(self, certificate: Path, key: Path) -> None:
        """Copy certificate and key from PEM files that contain both."""
        put(self.place / "api.pem", certificate)
        put(self.place / "api.key", key)

    def reloads(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("nimbus_api_certificate_reloads_total", {"outcome": outcome})

    def expires_at(self) -> float | None:
        return self.registry.get_sample_value("nimbus_api_certificate_expiry_timestamp_seconds")

    def serial(self, server: ApiServer, name: str | None = None) -> bytes:
        """Serial number of the certificate of a handshake, which is verified."""
        context = ssl.create_default_context(cafile=self.authority.file)
        context.check_hostname = name is not None
        with (
            socket.create_connection(("127.0.0.1", server.port), 30) as plain,
            context.wrap_socket(plain, server_hostname=name) as shaken,
        ):
            found = shaken.getpeercert(binary_form=True)
        assert found is not None
        return found


@pytest.fixture
def served(tmp_path: Path) -> Served:
    authority = Authority(tmp_path, "nimbus")
    return Served(authority, authority.certificate("one"), authority.certificate("other"), tmp_path)


@pytest.fixture
def server(served: Served) -> Iterator[ApiServer]:
    server = served.start()
    yield server
    server.stop()


def test_handshake_is_given_the_new_certificate_with_and_without_a_name(
    served: Served, server: ApiServer
) -> None:
    before = served.serial(server)
    assert server.url.startswith("https://")
    served.tls.look()
    assert served.serial(server) == before

    served.install(served.other, served.other)
    served.tls.look()

    assert before != served.serial(server) == served.serial(server, "127.0.0.1")
    assert (served.reloads("loaded"), served.reloads("refused")) == (1, 0)


def test_metric_says_when_the_served_certificate_expires(served: Served, server: ApiServer) -> None:
    def of_handshake() -> float:
        der = served.serial(server)
        return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()

    assert served.expires_at() == of_handshake()

    far = served.authority.certificate(
        "far", ends_in_h=40 * 365 * 24
    )  # DER writes dates after 2049 differently
    served.install(far, far)
    served.tls.look()
    assert served.expires_at() == of_handshake() > datetime(2050, 1, 1, tzinfo=UTC).timestamp()

    put(served.place / "api.pem", served.one)  # the key does not fit, so the previous pair stays in use
    served.tls.look()
    assert served.expires_at() == of_handshake()


def test_certificate_of_the_chain_that_expires_first_counts(served: Served, server: ApiServer) -> None:
    far = served.authority.certificate("far", ends_in_h=40 * 365 * 24)
    chain = served.place / "chain.pem"
    chain.write_bytes(far.read_bytes() + served.one.read_bytes())
    served.install(chain, far)
    served.tls.look()

    first = x509.load_pem_x509_certificate(served.one.read_bytes())
    assert served.expires_at() == first.not_valid_after_utc.timestamp()


def test_wrong_pair_is_refused_and_the_old_one_kept_until_the_pair_is_whole(
    served: Served, server: ApiServer
) -> None:
    before = served.serial(server)
    put(served.place / "api.pem", served.other)  # the key is still that of the first
    served.tls.look()
    assert served.serial(server) == before
    (served.place / "api.key").write_text("no key")
    served.tls.look()
    (served.place / "api.key").unlink()
    served.tls.look()
    assert served.serial(server) == before
    assert (served.reloads("loaded"), served.reloads("refused")) == (0, 3)

    put(served.place / "api.key", served.other)
    served.tls.look()

    assert served.serial(server) != before
    assert served.reloads("loaded") == 1


def test_expired_certificate_is_refused_and_the_valid_one_kept(served: Served, server: ApiServer) -> None:
    before = served.serial(server)
    expired = served.authority.certificate("expired", ends_in_h=-1)

    served.install(expired, expired)
    served.tls.look()

    assert served.serial(server) == before
    assert (served.reloads("loaded"), served.reloads("refused")) == (0, 1)


def test_certificate_that_has_expired_is_served_and_logged_once_until_it_is_replaced(served: Served) -> None:
    expired = served.authority.certificate("expired", ends_in_h=-1)
    served.install(expired, expired)
    tls = ReloadingTls(served.place / "api.pem", served.place / "api.key", served.registry)

    with capture_logs() as logs:
        tls.look()
        tls.look()
        served.install(served.one, served.one)
        tls.look()
        tls.look()

    assert [line["event"] for line in logs] == ["certificate_expired", "certificate_loaded"]


def test_certificate_is_exchanged_under_load_without_a_failed_handshake(
    served: Served, server: ApiServer, eventually: Eventually
) -> None:
    stop, done, failed = threading.Event(), [], []
    verify = ssl.create_default_context(cafile=served.authority.file)

    def load() -> None:
        while not stop.is_set():
            try:
                with httpx.Client(verify=verify, timeout=60) as client:  # each has its own handshake
                    done.append(client.get(f"{server.url}/").status_code)
            except httpx.HTTPError as exc:
                failed.append(repr(exc))

    clients = [threading.Thread(target=load) for _ in range(4)]
    for client in clients:
        client.start()
    for number in range(6):
        made = (served.other, served.one)[number % 2]
        put(served.place / "api.pem", made)
        served.tls.look()  # reads while only half of the pair is new
        put(served.place / "api.key", made)
        served.tls.look()
        count = len(done)
        eventually(lambda count=count: len(done) > count + 4 or failed)
    stop.set()
    for client in clients:
        client.join(60)

    assert failed == []
    assert set(done) == {200}
    assert (served.reloads("loaded"), served.reloads("refused")) == (6, 6)


def test_pair_that_cannot_be_used_keeps_the_api_from_being_built(served: Served) -> None:
    (served.place / "api.key").write_text("no key")

    with pytest.raises(CertificateError) as refused:
        ReloadingTls(served.one, served.place / "api.key", served.registry)

    assert refused.value.exit_code == 2
    assert "api.tls" in str(refused.value)
    assert os.fspath(served.one) in str(refused.value)


def test_doctor_knows_a_scheduler_that_serves_tls_on_its_port(server: ApiServer) -> None:
    found = host.port("127.0.0.1", server.port, tls=True)
    assert (found.verdict, found.detail) == (Level.OK, "scheduler s1 serves there")
