"""Ports: remembered, and replaced with a word when another process has taken them."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.localstack.errors import PortBusyError
from nimbus.localstack.ports import _LOWEST, PortBook, free_port, is_free, require_free


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()
        yield server.getsockname()[1]


def test_free_port_is_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert all(free_port() < lowest for _ in range(50))


def test_port_is_the_same_at_the_next_start(tmp_path: Path) -> None:
    first = PortBook(tmp_path / "ports.json").take("zookeeper")

    assert PortBook(tmp_path / "ports.json").take("zookeeper") == first


def test_port_is_another_and_said_so_when_the_old_one_is_busy(tmp_path: Path, busy: int) -> None:
    (tmp_path / "ports.json").write_text(json.dumps({"s3": busy}))
    said: list[str] = []

    port = PortBook(tmp_path / "ports.json", said.append).take("s3")

    assert port != busy
    assert is_free(port)
    assert len(said) == 1
    assert str(busy) in said[0]
    assert str(port) in said[0]
    assert PortBook(tmp_path / "ports.json").take("s3") == port


@pytest.mark.parametrize("content", ["", "[1]", '{"s3": "x"}', '{"s3": 0}', '{"s3": 70000}'])
def test_port_is_new_when_the_book_is_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)

    port = PortBook(tmp_path / "ports.json").take("s3")

    assert json.loads((tmp_path / "ports.json").read_text()) == {"s3": port}


def test_busy_port_is_refused_with_what_to_do(busy: int) -> None:
    with pytest.raises(
        PortBusyError, match=rf"S3 server cannot listen on 127\.0\.0\.1:{busy}.*ss -ltnp"
    ) as caught:
        require_free(busy, "S3 server")

    assert caught.value.code == "port_busy"


def test_port_that_another_process_chose_a_moment_ago_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    chooses = "from nimbus.localstack.ports import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", chooses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        offered = iter([theirs, theirs, *range(25_000, 25_100)])
        monkeypatch.setattr(secrets, "randbelow", lambda _: next(offered) - _LOWEST)

        ours = free_port()

        assert ours != theirs
        other.communicate("\n")


def test_port_that_was_chosen_a_moment_ago_is_not_chosen_again() -> None:
    chosen = [free_port() for _ in range(60)]

    assert len(set(chosen)) == len(chosen)
