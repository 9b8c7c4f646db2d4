"""The doctor's verdicts about the worker's provider of secrets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nimbus.cli.doctor.host import secrets_of
from nimbus.config.sections import SecretsSection


def findings(environment: dict[str, str] | None = None, **said: Any) -> list[tuple[str, str]]:
    settings: Any = SimpleNamespace(worker=SimpleNamespace(secrets=SecretsSection(**said)))
    return [(found.verdict.value, found.detail) for found in secrets_of(settings, environment or {})]


def test_worker_without_a_provider_is_not_judged() -> None:
    assert findings() == []


def test_folder_is_judged_by_who_can_read_its_files(tmp_path: Path) -> None:
    file = tmp_path / "warehouse"
    file.write_text("x")
    file.chmod(0o640)
    ((verdict, detail),) = findings(provider="file", folder=tmp_path)
    assert (verdict, detail.startswith("others may read warehouse")) == ("fail", True)

    file.chmod(0o600)
    assert findings(provider="file", folder=tmp_path) == [("ok", f"1 in {tmp_path}")]
    ((verdict, _),) = findings(provider="file", folder=tmp_path / "nothing")
    assert verdict == "fail"


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ({"provider": "env"}, "ok"),
        ({"provider": "command", "command": ["cat"]}, "ok"),
        ({"provider": "command", "command": ["no-such-program-here"]}, "fail"),
        ({"provider": "command"}, "fail"),
        ({"provider": "file"}, "fail"),
        ({"provider": "nowhere.at.all:x"}, "fail"),
    ],
)
def test_provider_that_cannot_work_is_told(said: dict[str, Any], verdict: str) -> None:
    ((found, _),) = findings({"NIMBUS_SECRET_x": "value"}, **said)

    assert found == verdict
