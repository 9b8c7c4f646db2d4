"""`alerts` in the configuration: refusals and their messages; secrets are never shown."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.config import InvalidConfigurationError, Settings, load_settings
from nimbus.config.settings import shown

HEAD = """\
zookeeper: {hosts: "127.0.0.1:2181"}
storage: {bucket: artifacts}
scheduler: {state_dir: /var/lib/nimbus}
worker: {data: /data}
alerts:
"""


def load(tmp_path: Path, alerts: str) -> Settings:
    file = tmp_path / "nimbus.yaml"
    file.write_text(HEAD + alerts)
    return load_settings(file, {})


def test_targets_and_rules_are_read(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "  targets:\n"
        "    oncall: {kind: webhook, url: 'https://hooks.example.com/T0/tok', secret_variable: HOOK}\n"
        "    post: {kind: mail, smtp: 'mail:587', from: n@example.com, to: [a@example.com]}\n"
        "  notify: [{on: [failed, recovered], to: oncall}]\n",
    ).alerts

    assert found.targets["post"].tls == "starttls"
    assert found.targets["post"].sender == "n@example.com"
    assert found.give_up_after == timedelta(hours=24)
    assert [rule.to for rule in found.notify] == ["oncall"]


def test_url_of_a_webhook_is_shown_nowhere(tmp_path: Path) -> None:
    found = load(tmp_path, "  targets: {oncall: {kind: webhook, url: 'https://hooks.example.com/T0/tok'}}\n")

    assert "T0" not in repr(found)
    assert "T0" not in "".join(str(one.value) for one in shown(found))


@pytest.mark.parametrize(
    ("alerts", "words"),
    [
        ("  targets: {a: {kind: webhook}}", "alerts.targets.a.url: is missing; a webhook target needs it"),
        ("  targets: {a: {kind: webhook, url: hooks/T0}}", "url: must be http(s)://host/path"),
        (
            "  targets: {a: {kind: webhook, url: 'http://h', smtp: 'm:25'}}",
            "smtp: a webhook target has no smtp; remove it",
        ),
        (
            "  targets: {a: {kind: mail, smtp: 'm:25', to: a@example.com}}",
            "from: is missing; a mail target needs it",
        ),
        ("  targets: {a: {kind: mail, smtp: m, from: a@b, to: a@b}}", "must be host:port of a mail server"),
        ("  targets: {a: {kind: mail, smtp: 'm:25', from: ab, to: a@b}}", "'ab' is not a mail address"),
        (
            "  targets: {a: {kind: mail, smtp: 'm:25', from: a@b, to: a@b, username: u}}",
            "username and secret_file (or secret_variable) belong together",
        ),
        (
            "  targets: {a: {kind: webhook, url: 'http://h', secret_file: /k, secret_variable: K}}",
            "secret_file is given as well; keep one of them",
        ),
        (
            "  targets: {a: {kind: apprise}}",
            "a.secret_file: is missing; an apprise target has its URL in secret_file or secret_variable",
        ),
        (
            "  targets: {a: {kind: apprise, url: 'json://T0', secret_file: /k}}",
            "url: an apprise target has no url; remove it",
        ),
        ("  notify: [{on: [failed], to: nobody}]", "there is no target nobody in alerts.targets"),
        ("  notify: [{on: [failes], to: nobody}]", 'did you mean "failed"'),
        ("  notify: [{on: [], to: nobody}]", "must not be empty"),
    ],
)
def test_alerts_are_refused_with_what_to_do(tmp_path: Path, alerts: str, words: str) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        load(tmp_path, alerts + "\n")

    assert words in str(refused.value)
    assert "T0" not in str(refused.value)
