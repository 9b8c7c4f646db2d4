"""Alerts through Apprise, with its service `json://` and a real HTTP server."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from nimbus.adapters.alerts import TIMEOUT_S, AppriseService, service_of
from nimbus.bootstrap import alerts
from nimbus.bootstrap.alerts import alert_targets, alert_tests
from nimbus.cli.doctor import Level
from nimbus.cli.doctor.services import alert_targets_of
from nimbus.config import InvalidConfigurationError, Settings, load_settings
from nimbus.domain.cluster.alerts import AlertEvent, message
from nimbus.ports import AlertNotSentError
from tests.nimbus.alert_receivers import webhook_server
from tests.nimbus.integration.test_alert_targets import ALERT, WORDS

pytest.importorskip("apprise")

Configure = Callable[[Mapping[str, str]], Settings]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Settings with targets of kind apprise. The URL of each is in the variable with its upper-case name."""

    def write(urls: Mapping[str, str]) -> Settings:
        targets = [f"    {name}: {{kind: apprise, secret_variable: {name.upper()}}}\n" for name in urls]
        file = tmp_path / "nimbus.yaml"
        file.write_text(
            "zookeeper: {hosts: '127.0.0.1:2181'}\nstorage: {bucket: artifacts}\n"
            f"scheduler: {{state_dir: {tmp_path}}}\nworker: {{data: {tmp_path}}}\n"
            f"alerts:\n  targets:\n{''.join(targets)}"
        )
        return load_settings(file, {})

    return write


@pytest.fixture
def log() -> Iterator[StringIO]:
    """The log lines of libraries, as a scheduler shows them."""
    text = StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    yield text
    logging.getLogger().removeHandler(handler)


def test_apprise_service_gets_subject_text_and_weight_of_an_alert() -> None:
    with webhook_server() as server:
        AppriseService(lambda: server.url.replace("http:", "json:")).send(WORDS)
        recovered = replace(ALERT, event=AlertEvent.RECOVERED)
        words = message(recovered, cluster="nimbus", public_url="http://s1:8470")
        AppriseService(lambda: server.url.replace("http:", "json:")).send(words)

    said = [json.loads(body) for _, body in server.got]
    assert said[0]["title"] == WORDS.subject
    assert "nimbus run explain p-1" in said[0]["message"]
    assert "may repeat" in said[0]["message"]
    assert [one["type"] for one in said] == ["failure", "success"]


def test_service_that_refuses_is_an_error_with_its_status_and_without_its_url(log: StringIO) -> None:
    with webhook_server() as server:
        server.status = 503
        with pytest.raises(AlertNotSentError) as refused:
            AppriseService(lambda: f"json://127.0.0.1:{server.port}/token-1").send(WORDS)

    assert str(refused.value) == "json: answered 503"
    assert not refused.value.doubtful
    assert log.getvalue() == ""


def test_service_that_cannot_be_reached_may_have_accepted() -> None:
    with webhook_server() as server:
        port = server.port

    with pytest.raises(AlertNotSentError, match=r"^json: not accepted$") as refused:
        AppriseService(lambda: f"json://127.0.0.1:{port}/token-1").send(WORDS)
    assert refused.value.doubtful


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://token-1", "Apprise knows no service of this URL"),
        ("", "Apprise knows no service of this URL"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#a/#b", "2 recipients"),
    ],
)
def test_url_that_is_not_of_one_recipient_is_refused_without_being_shown(url: str, words: str) -> None:
    with pytest.raises(AlertNotSentError, match=words) as refused:
        AppriseService(lambda: url).send(WORDS)
    assert "token-1" not in str(refused.value)
    assert "TIiajk" not in str(refused.value)
    assert not refused.value.doubtful


def test_waits_of_an_apprise_service_are_limited_whatever_its_url_says() -> None:
    service = service_of("json://127.0.0.1/?cto=600&rto=600")

    assert service.request_timeout == (TIMEOUT_S, TIMEOUT_S)


def test_apprise_target_is_configured_tested_and_looked_at(configure: Configure) -> None:
    found = configure({"team": "", "keyless": "", "strange": ""})
    with webhook_server() as server:
        urls = {"TEAM": server.url.replace("http:", "json:"), "STRANGE": "nosuch://x"}
        alert_tests(found, alert_targets(found, urls)).send("team")
        looked = {one.check: one.verdict for one in alert_targets_of(found, urls)}

    ((_, body),) = server.got
    assert json.loads(body)["type"] == "info"
    assert looked == {
        "alert target team": Level.OK,
        "alert target keyless": Level.FAIL,
        "alert target strange": Level.FAIL,
    }


def test_scheduler_without_the_extra_does_not_start_and_says_what_to_install(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "find_spec", lambda _name: None)

    settings = configure({"team": ""})

    with pytest.raises(InvalidConfigurationError, match=r"alerts\.targets\.team.*scheduler\[apprise\]"):
        alert_targets(settings, {})
    assert [one.verdict for one in alert_targets_of(settings, {"TEAM": "json://127.0.0.1"})] == [Level.FAIL]


def test_apprise_is_not_imported_before_an_alert_is_sent() -> None:
    code = (
        "import sys, nimbus.bootstrap.alerts, nimbus.bootstrap.scheduler\nsys.exit('apprise' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
