"""TLS and SASL to a real ZooKeeper."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kazoo.exceptions import ConnectionClosedError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult

import leader.zookeeper.session as session_module
from leader import (
    ElectionConfigError,
    SessionState,
    ZooKeeperAuthError,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnreachableError,
)
from leader.clock import Countdown
from leader.errors import ZooKeeperTlsError
from leader.zookeeper.acl import AclEnforcement
from leader.zookeeper.config import TlsConfig
from leader.zookeeper.kazoo_client import Connector
from nimbus.localstack.ports import free_port
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy

LONG = timedelta(seconds=30)
PASSWORD = "of-the-key"
Eventually = Callable[..., None]


class Authority:
    """Signs certificates. Each is a PEM file that also contains the key."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._signed(self._name, self._key, ca=True)))

    def certificate(self, name: str, *, address: str = "127.0.0.1", ends_in_h: int = 1) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = self._signed(subject, key, ca=False, address=address, ends_in_h=ends_in_h)
        file = self._folder / f"{name}.pem"
        file.write_bytes(_pem(made) + _key_pem(key, serialization.NoEncryption()))
        locked = serialization.BestAvailableEncryption(PASSWORD.encode())
        file.with_suffix(".key").write_bytes(_key_pem(key, locked))
        return file

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool,
        address: str = "127.0.0.1",
        ends_in_h: int = 1,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=2))
            .not_valid_after(now + timedelta(hours=ends_in_h))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            # Python 3.13 verifies strictly: an authority says that it signs, and all name their keys.
            .add_extension(_use(ca=ca), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )


def _use(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, lock: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


class SecureServer(ZooKeeperServer):
    """A server with more settings, and a port for TLS in addition to the plain one."""

    def __init__(self, data_dir: Path, settings: Mapping[str, object], **options: Any) -> None:
        super().__init__(data_dir, **options)
        self.secure_port = free_port()
        self._more = settings

    @property
    def secure_hosts(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), **self._more}


class Stage(SecureServer):
    """A server that requires TLS with a certificate of our authority, and the certificates."""

    def __init__(self, folder: Path, *, ends_in_h: int = 1) -> None:
        self.ours, self.others = Authority(folder, "ours"), Authority(folder, "others")
        server = self.ours.certificate("server", ends_in_h=ends_in_h)
        self.client = self.ours.certificate("client")
        super().__init__(
            folder / "data",
            {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": server,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": self.ours.file,
                "ssl.trustStore.type": "PEM",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            },
        )

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "secureClientPort": self.secure_port}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("tls"))
    made.start()
    long_lived.processes.append(made)
    yield made
    made.stop()


class _OneTry(Countdown):
    """A time limit that is over when the first try to connect has failed."""

    def __init__(self, limit: timedelta, connector: Connector) -> None:
        super().__init__(limit)
        self._connector = connector

    def remaining(self) -> timedelta:
        return super().remaining() if self._connector.last_failure is None else timedelta(0)


class RefusedSession(ZooKeeperSession):
    """A session that is refused. `start` usually tries again until its time is over; this one tries once."""

    def start(self, timeout: timedelta) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_module, "Countdown", lambda limit: _OneTry(limit, self._connector))
            super().start(timeout)


@pytest.fixture
def connect() -> Iterator[Callable[..., ZooKeeperSession]]:
    made: list[ZooKeeperSession] = []

    def start(
        hosts: str, kind: type[ZooKeeperSession] = ZooKeeperSession, **settings: Any
    ) -> ZooKeeperSession:
        made.append(kind(ZooKeeperConfig(hosts=hosts, **settings)))
        made[-1].start(LONG)
        return made[-1]

    yield start
    for session in made:
        session.close(LONG)


Connect = Callable[..., ZooKeeperSession]


def _tls(stage: Stage, **settings: Any) -> TlsConfig:
    return TlsConfig(**{"ca_file": stage.ours.file, "cert_file": stage.client, **settings})


def test_session_over_tls_does_its_work_and_its_log_says_tls(
    stage: Stage, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kazoo.client")
    session = connect(stage.secure_hosts, tls=_tls(stage))
    # kazoo tries again when a busy machine is slow to answer: each try must be over TLS.
    assert {line for line in caplog.messages if "use_ssl" in line} == {
        f"Connecting to 127.0.0.1(127.0.0.1):{stage.secure_port}, use_ssl: True"
    }
    big = bytes(500_000)

    session.call(session.client.create_async, "/over-tls", big)

    assert session.call(session.client.get_async, "/over-tls")[0] == big
    session.call(session.client.delete_async, "/over-tls")


def test_node_belongs_to_the_credential_alone(stage: Stage, connect: Connect) -> None:
    session = connect(stage.secure_hosts, tls=_tls(stage), auth=("digest", "ada:secret"))

    session.call(session.client.create_async, "/of-ada")

    assert AclEnforcement(session, "/of-ada").check() == []
    session.call(session.client.delete_async, "/of-ada")


def test_many_answers_in_a_row_over_tls_are_all_heard_at_once(stage: Stage, connect: Connect) -> None:
    session = connect(stage.secure_hosts, tls=_tls(stage))

    asked = [session.client.exists_async("/") for _ in range(300)]

    assert all(one.get(timeout=60) is not None for one in asked)


def test_key_with_a_password_is_opened(stage: Stage, connect: Connect) -> None:
    key = stage.client.with_suffix(".key")

    session = connect(stage.secure_hosts, tls=_tls(stage, key_file=key, key_password=PASSWORD))

    assert session.is_connected


def test_session_over_tls_survives_a_cut_connection(
    stage: Stage, connect: Connect, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", stage.secure_port)], plain=True) as proxy:
        session = connect(proxy.hosts, tls=_tls(stage))
        mine, heard = session.session_id, list[SessionState]()
        session.add_listener(heard.append)
        for number in range(1, 4):
            session.reconnect()
            eventually(lambda number=number: heard.count(SessionState.CONNECTED) == number)

        assert SessionState.LOST not in heard
        assert session.session_id == mine
        session.close(LONG)


def test_dead_link_is_noticed_over_tls_too(stage: Stage, connect: Connect, eventually: Eventually) -> None:
    with FaultProxy([("127.0.0.1", stage.secure_port)], plain=True) as proxy:
        session = connect(proxy.hosts, tls=_tls(stage), session_timeout=timedelta(seconds=3))
        heard: list[SessionState] = []
        session.add_listener(heard.append)
        proxy.black_hole()

        def asked_again_and_suspended() -> bool:
            session.client.exists_async("/")
            return bool(heard)

        eventually(asked_again_and_suspended)
        session.close(LONG)


def test_server_whose_certificate_nobody_we_trust_has_signed_is_refused(
    stage: Stage, connect: Connect
) -> None:
    with pytest.raises(ZooKeeperTlsError, match="certificate verify failed") as refused:
        connect(stage.secure_hosts, RefusedSession, tls=_tls(stage, ca_file=stage.others.file))

    assert isinstance(refused.value.__cause__, OSError)


def test_authorities_of_the_system_are_not_trusted_beside_our_own(stage: Stage) -> None:
    (trusted,) = _tls(stage).context().get_ca_certs()

    assert trusted["subject"] == ((("commonName", "ours"),),)


def test_server_that_wants_a_certificate_refuses_who_has_none(stage: Stage, connect: Connect) -> None:
    with pytest.raises(ZooKeeperTlsError, match="certificate"):
        connect(stage.secure_hosts, RefusedSession, tls=_tls(stage, cert_file=None))


def test_plain_server_is_told_from_one_that_speaks_tls(stage: Stage, connect: Connect) -> None:
    with pytest.raises(ZooKeeperTlsError, match="check that the port is for TLS"):
        connect(stage.hosts, RefusedSession, tls=_tls(stage))


def test_session_without_tls_at_a_port_that_wants_it_says_so(stage: Stage, connect: Connect) -> None:
    with pytest.raises(ZooKeeperUnreachableError, match="whether the port requires TLS"):
        connect(stage.secure_hosts, RefusedSession)


def test_certificate_for_another_name_is_refused_unless_told_otherwise(
    stage: Stage, connect: Connect
) -> None:
    with FaultProxy([("127.0.0.1", stage.secure_port)], host="127.0.0.9", plain=True) as proxy:
        with pytest.raises(ZooKeeperTlsError, match="IP address mismatch"):
            connect(proxy.hosts, RefusedSession, tls=_tls(stage))

        for setting in ("verify_certificate", "verify_hostname"):
            session = connect(proxy.hosts, tls=_tls(stage, **{setting: False}))
            assert session.is_connected
            session.close(LONG)


def test_certificate_of_another_time_is_refused_unless_told_otherwise(
    tmp_path: Path, connect: Connect
) -> None:
    stage = Stage(tmp_path, ends_in_h=-1)
    stage.start()
    try:
        with pytest.raises(ZooKeeperTlsError, match="certificate has expired"):
            connect(stage.secure_hosts, RefusedSession, tls=_tls(stage))

        assert connect(stage.secure_hosts, tls=_tls(stage, verify_certificate=False)).is_connected
    finally:
        stage.stop()


@pytest.mark.parametrize("setting", ["ca_file", "cert_file"])
def test_file_that_is_missing_or_no_certificate_is_refused_at_once(
    stage: Stage, tmp_path: Path, setting: str
) -> None:
    nonsense = tmp_path / "nonsense.pem"
    with pytest.raises(ElectionConfigError, match=f"{setting} .*nonsense.pem"):
        _tls(stage, **{setting: nonsense})
    nonsense.write_text("no certificate")
    with pytest.raises(ElectionConfigError, match=f"{setting} .*nonsense.pem"):
        _tls(stage, **{setting: nonsense})


def test_key_that_does_not_fit_or_cannot_be_opened_is_refused_at_once(stage: Stage) -> None:
    key = stage.client.with_suffix(".key")
    with pytest.raises(ElectionConfigError, match="key_password"):
        _tls(stage, key_file=key)
    with pytest.raises(ElectionConfigError, match="belong together"):
        _tls(stage, key_file=stage.others.certificate("stranger"))
    with pytest.raises(ElectionConfigError, match="needs cert_file"):
        TlsConfig(key_file=key)


def test_old_tls_is_not_spoken(stage: Stage) -> None:
    assert _tls(stage).context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_password_of_the_key_is_not_shown() -> None:
    assert "secret" not in repr(TlsConfig(key_password="secret"))


JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_nimbus="right";
};
"""


@pytest.fixture(scope="module")
def sasl_server(tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[ZooKeeperServer]:
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "jaas.conf").write_text(JAAS)
    made = SecureServer(
        folder / "data",
        {
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "enforce.auth.enabled": "true",
            "enforce.auth.schemes": "sasl",
        },
        environment={"JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={folder / 'jaas.conf'}"},
    )
    made.start()
    long_lived.processes.append(made)
    yield made
    made.stop()


def test_sasl_without_its_package_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leader.zookeeper.config.find_spec", lambda _name: None)

    with pytest.raises(ElectionConfigError, match="pip install pure-sasl"):
        ZooKeeperConfig(hosts="one:1", auth=("sasl", "nimbus:right"))


def test_sasl_user_is_let_in_and_its_nodes_are_closed_to_others(
    sasl_server: ZooKeeperServer, connect: Connect, zk_root: str
) -> None:
    pytest.importorskip("puresasl", reason="SASL needs the package pure-sasl")
    session = connect(sasl_server.hosts, auth=("sasl", "nimbus:right"))
    session.call(session.client.create_async, zk_root, b"")

    (entry,), _ = session.call(session.client.get_acls_async, zk_root)
    assert tuple(entry.id) == ("sasl", "nimbus")


def test_wrong_sasl_password_is_an_auth_error(sasl_server: ZooKeeperServer, connect: Connect) -> None:
    pytest.importorskip("puresasl", reason="SASL needs the package pure-sasl")
    with pytest.raises(ZooKeeperAuthError, match="scheme sasl"):
        connect(sasl_server.hosts, RefusedSession, auth=("sasl", "nimbus:wrong"))


@pytest.mark.parametrize(
    "answer",
    [
        # for example if its writer has ended, or it was queued after the queue was cleared
        ConnectionClosedError("Connection has been closed"),
        KazooTimeoutError(),  # none came in time
    ],
    ids=["closed", "silent"],
)
def test_wrong_sasl_password_is_an_auth_error_whatever_becomes_of_the_first_question(
    sasl_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, answer: Exception
) -> None:
    """kazoo reports a connection before it sends the credential. A request in between may be lost."""
    pytest.importorskip("puresasl", reason="SASL needs the package pure-sasl")
    session = ZooKeeperSession(ZooKeeperConfig(hosts=sasl_server.hosts, auth=("sasl", "nimbus:wrong")))

    def asked_as_kazoo_gives_up(_path: str) -> IAsyncResult:
        eventually(lambda: session._connector.has_stopped)
        question: IAsyncResult = session.client.handler.async_result()
        question.set_exception(answer)
        return question

    monkeypatch.setattr(session.client, "exists_async", asked_as_kazoo_gives_up)
    try:
        with pytest.raises(ZooKeeperAuthError, match="scheme sasl"):
            session.start(LONG)
    finally:
        session.close(LONG)


def test_wrong_sasl_password_is_an_auth_error_when_the_connection_was_over_before_it_was_seen(
    sasl_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    pytest.importorskip("puresasl", reason="SASL needs the package pure-sasl")
    session = ZooKeeperSession(ZooKeeperConfig(hosts=sasl_server.hosts, auth=("sasl", "nimbus:wrong")))
    start = session.client.start_async

    def seen_too_late() -> Event:
        live: Event = start()
        eventually(lambda: session._connector.has_stopped)
        return live

    monkeypatch.setattr(session.client, "start_async", seen_too_late)
    try:
        with pytest.raises(ZooKeeperAuthError, match="scheme sasl"):
            session.start(LONG)
    finally:
        session.close(LONG)


def test_server_that_wants_sasl_refuses_who_brings_nothing(
    sasl_server: ZooKeeperServer, connect: Connect
) -> None:
    with pytest.raises(ZooKeeperAuthError, match="scheme none"):
        connect(sasl_server.hosts, RefusedSession)
