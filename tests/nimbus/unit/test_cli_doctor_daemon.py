"""The doctor's checks of a host's own files, users and addresses: each wrong one is found, with advice."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nimbus.cli.doctor import CheckResult, Level, host
from nimbus.config import Settings, load_settings
from nimbus.localstack.ports import free_port
from nimbus.records import TOKENS, TokensBody
from tests.leader.integration.test_tls import Authority

Configure = Callable[..., Settings]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Settings of a scheduler on loopback, with more keys by section."""

    def written(**sections: dict[str, Any]) -> Settings:
        document: dict[str, Any] = {
            "zookeeper": {"hosts": "127.0.0.1:2181"},
            "storage": {"bucket": "unused"},
            "scheduler": {"id": "s1", "state_dir": str(tmp_path), "port": free_port()},
            "worker": {"data": str(tmp_path)},
        }
        for name, keys in sections.items():
            document[name] = document.get(name, {}) | keys
        file = tmp_path / "nimbus.yaml"
        file.write_text(yaml.safe_dump(document))
        return load_settings(file, {})

    return written


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ("", "valid for 127.0.0.1"),
        ("expired", "certificate has expired"),
        ("foreign", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ("missing", "No such file"),
        ("mismatched", "key values mismatch"),
        ("unreadable", "Is a directory"),
    ],
)
def test_certificate(wrong: str, detail: str, configure: Configure, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    one = authority.certificate(
        "one",
        address="10.9.9.9" if wrong == "foreign" else "127.0.0.1",
        ends_in_h=-1 if wrong == "expired" else 1,
    )
    key = {
        "mismatched": authority.certificate("other"),
        "missing": tmp_path / "none.pem",
        "unreadable": tmp_path,
    }.get(wrong, one)

    (found,) = host.certificate_of(configure(api={"tls": {"certificate": str(one), "key": str(key)}}))

    assert found.verdict is (Level.FAIL if wrong else Level.OK)
    assert detail in found.detail


@pytest.mark.parametrize(("text", "verdict"), [("", Level.OK), ("no JSON", Level.FAIL), (None, Level.WARN)])
def test_tokens_file(text: str | None, verdict: Level, configure: Configure, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    if text is not None:
        file.write_bytes(text.encode() or TOKENS.encode(TokensBody(tokens=())))

    (found,) = host.tokens_of(configure(api={"tokens_file": str(file)}))

    assert found.verdict is verdict


def test_user_of_tasks_that_does_not_exist_fails(configure: Configure) -> None:
    assert list(host.users_of(configure())) == []

    (found,) = host.users_of(configure(worker={"run_as": "nobody-of-that-name"}))

    assert found.verdict is Level.FAIL
    assert "worker.run_as" in found.detail


def test_folder_of_outputs_that_is_missing_fails(configure: Configure, tmp_path: Path) -> None:
    (there,) = host.data_of(configure())
    (missing,) = host.data_of(configure(worker={"data": str(tmp_path / "not-mounted")}))

    assert (there.verdict, missing.verdict) == (Level.OK, Level.FAIL)
    assert "mount it" in missing.advice


def test_disk_that_is_too_full_for_an_attempt_fails(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configure()
    settings.worker.work_dir.mkdir(parents=True, exist_ok=True)
    assert list(host.room_of(settings)) == []

    monkeypatch.setattr("nimbus.worker.host.free_room.MIN_FREE_BYTES", 1 << 62)
    (found,) = host.room_of(settings)

    assert found.verdict is Level.FAIL
    assert str(settings.worker.work_dir) in found.detail


def _advertised(configure: Configure, **keys: Any) -> CheckResult:
    return host.advertised(configure(scheduler=keys))


def test_advertised_url_that_leads_here_is_right(configure: Configure) -> None:
    assert _advertised(configure).verdict is Level.OK


def test_advertised_url_of_another_port_fails(configure: Configure) -> None:
    found = _advertised(configure, advertise_url=f"http://127.0.0.1:{free_port()}")

    assert (found.verdict, "refused" in found.detail) == (Level.FAIL, True)


def test_advertised_url_of_an_unknown_name_fails(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    found = _advertised(configure, advertise_url="http://typo.example:8470")

    assert (found.verdict, found.detail) == (Level.FAIL, "typo.example: Name or service not known")


def test_advertised_url_where_something_else_listens_is_told(configure: Configure) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        found = _advertised(configure, advertise_url=f"http://127.0.0.1:{other.getsockname()[1]}")

    assert found.verdict is Level.WARN
    assert "something else accepts connections there" in found.detail


def test_advertised_url_that_only_this_host_reaches_is_told(configure: Configure) -> None:
    found = host.advertised(configure(zookeeper={"hosts": "zk1:2181"}))

    assert (found.verdict, "only this host reaches it" in found.detail) == (Level.WARN, True)
