"""Checks of data that tasks wait for: what counts as present, and what cannot be reached."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from blobsync import BucketUnavailableError, S3ObjectStore
from nimbus.adapters import data_probe
from nimbus.adapters.data_probe import DataProber, UnfitAnswerError, is_forbidden, status_of
from nimbus.domain.starts.waits import DataProbe, DataSource, ProbeResult, address_fault

LOOPBACK = ("127.0.0.1",)


class Server:
    """Answers each connection with the same bytes, and records the requests."""

    def __init__(self, answer: bytes, *, keeps_open: bool = False) -> None:
        self._answer, self._keeps_open = answer, keeps_open
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with closing(connection):
                if self._stop.is_set():
                    return
                self.asked.append(connection.recv(4096))
                connection.sendall(self._answer)
                if self._keeps_open:
                    self._stop.wait(60)

    def close(self) -> None:
        self._stop.set()
        with closing(socket.create_connection(self._socket.getsockname())):
            self._thread.join(60)
        self._socket.close()


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(answer: bytes, *, keeps_open: bool = False) -> Server:
        servers.append(Server(answer, keeps_open=keeps_open))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def prober(bucket: object = None, allow: tuple[str, ...] = LOOPBACK) -> DataProber:
    def open_bucket(_name: str) -> S3ObjectStore:
        return bucket  # type: ignore[return-value]

    return DataProber(open_bucket=open_bucket, http_allow=allow)


def test_http_data_is_there_when_the_answer_has_its_status(serve: Serve) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\n\r\nbody")

    assert prober().probe(DataProbe(DataSource.HTTP, f"{server.url}/a?b=c")).there
    assert prober().probe(DataProbe(DataSource.HTTP, server.url, 204)) == ProbeResult(False, "200")
    assert server.asked[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")


def test_redirect_is_an_answer_and_is_not_followed(serve: Serve) -> None:
    elsewhere = serve(b"HTTP/1.1 200 OK\r\n\r\n")
    server = serve(f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.url}/\r\n\r\n".encode())

    assert prober().probe(DataProbe(DataSource.HTTP, server.url)) == ProbeResult(False, "302")
    assert elsewhere.asked == []


def test_no_more_is_read_than_the_status_line(serve: Serve) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, keeps_open=True)

    assert status_of(server.url, LOOPBACK) == 200


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"x" * 100_000, b"", b"HTTP/1.1 999 No\r\n"])
def test_what_does_not_speak_http_is_not_there(serve: Serve, answer: bytes) -> None:
    server = serve(answer)

    assert prober().probe(DataProbe(DataSource.HTTP, server.url)) == ProbeResult(
        False, "what answers does not speak HTTP"
    )


def test_answer_that_does_not_come_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_probe, "TIMEOUT_S", 0.2)
    server = serve(b"HTTP/1.1 20", keeps_open=True)

    assert not prober().probe(DataProbe(DataSource.HTTP, server.url)).there


def test_this_host_is_refused_unless_it_is_allowed(serve: Serve) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\n\r\n")

    seen = prober(allow=()).probe(DataProbe(DataSource.HTTP, server.url))

    assert not seen.there
    assert seen.said.startswith("refused: 127.0.0.1 is 127.0.0.1")
    assert "waits.http_allow" in seen.said
    assert server.asked == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ],
)
def test_addresses_that_no_pipeline_should_reach_are_forbidden(address: str) -> None:
    assert is_forbidden(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["10.1.2.3", "192.168.1.1", "93.184.216.34", "2001:db8::1", "fd00::1"])
def test_other_addresses_are_not_forbidden(address: str) -> None:
    assert not is_forbidden(ipaddress.ip_address(address))


def test_host_that_no_resolver_takes_is_not_there() -> None:
    assert not prober().probe(DataProbe(DataSource.HTTP, f"http://{'a' * 64}.example/")).there


@pytest.mark.parametrize("allowed", ["127.0.0.1", "LOCALHOST", "[::1]"])
def test_hosts_are_allowed_in_any_spelling(allowed: str) -> None:
    host = allowed.lower()

    seen = prober(allow=(allowed,)).probe(DataProbe(DataSource.HTTP, f"http://{host}:9/"))

    assert not seen.said.startswith("refused: ")


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "localhost"])
def test_other_spellings_of_this_host_are_refused(host: str) -> None:
    with pytest.raises((UnfitAnswerError, OSError)):
        status_of(f"http://{host}:9/", ())


def test_name_with_one_forbidden_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(*_args: object, **_more: object) -> list[object]:
        return [(2, 1, 6, "", (address, 80)) for address in ("93.184.216.34", "169.254.169.254")]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)

    with pytest.raises(UnfitAnswerError, match=r"169\.254\.169\.254"):
        status_of("http://innocent.example/", ())


@pytest.mark.parametrize(
    ("source", "address"),
    [
        (DataSource.HTTP, "file:///etc/passwd"),
        (DataSource.HTTP, "gopher://host/"),
        (DataSource.HTTP, "http://"),
        (DataSource.HTTP, "http://user:secret@host/"),
        (DataSource.HTTP, "http://host/a b"),
        (DataSource.HTTP, "http://host/\r\nX-Header: 1"),
        (DataSource.HTTP, "http://host:99999/"),
        (DataSource.HTTP, "http://h\u00f6st/"),
        (DataSource.S3, "s3://bucket"),
        (DataSource.S3, "s3:///key"),
        (DataSource.S3, "http://bucket/key"),
        (DataSource.FILE, "relative/path"),
        (DataSource.FILE, "/data/../etc/passwd"),
        (DataSource.FILE, "/a\0b"),
        (DataSource.FILE, "/" + "x" * 3000),
    ],
)
def test_address_of_another_form_is_refused(source: DataSource, address: str) -> None:
    assert address_fault(source, address) is not None


def test_file_or_folder_is_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "there").touch()

    assert prober().probe(DataProbe(DataSource.FILE, str(tmp_path / "there"))).there
    assert prober().probe(DataProbe(DataSource.FILE, str(tmp_path))).there
    assert prober().probe(DataProbe(DataSource.FILE, str(tmp_path / "not"))) == ProbeResult(
        False, "no such file"
    )
    assert not prober().probe(DataProbe(DataSource.FILE, str(tmp_path / "there" / "below"))).there


class Bucket:
    """The part of a bucket that probes use."""

    def __init__(self, *keys: str, away: bool = False) -> None:
        self._keys, self._away = keys, away

    def size(self, key: str) -> int | None:
        if self._away:
            raise BucketUnavailableError("it does not answer")
        return 1 if key in self._keys else None

    def list(self, prefix: str) -> Iterator[str]:
        return (key for key in self._keys if key.startswith(prefix))


@pytest.mark.parametrize(
    ("address", "there"),
    [("s3://b/day/_OK", True), ("s3://b/day", False), ("s3://b/day/", True), ("s3://b/other/", False)],
)
def test_object_or_prefix_is_there_or_not(address: str, there: bool) -> None:
    assert prober(Bucket("day/_OK")).probe(DataProbe(DataSource.S3, address)).there is there


def test_storage_that_does_not_answer_is_said() -> None:
    seen = prober(Bucket(away=True)).probe(DataProbe(DataSource.S3, "s3://b/key"))

    assert seen == ProbeResult(False, "it does not answer")
