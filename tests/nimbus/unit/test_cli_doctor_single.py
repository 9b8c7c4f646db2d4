"""The doctor's verdicts about a single scheduler's store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.bootstrap.resources import store_file
from nimbus.cli.doctor import CheckResult, Level, stores
from nimbus.cli.doctor.stores import zookeeper_of
from nimbus.config import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    document = {
        "leadership": {"elector": "single"},
        "storage": {"bucket": "nimbus"},
        "scheduler": {"state_dir": str(tmp_path / "state")},
        "worker": {"data": str(tmp_path / "data")},
    }
    file = tmp_path / "single.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_settings(file, {})


def finding(settings: Settings) -> CheckResult:
    (found,) = stores.store_of(settings)
    return found


def test_a_store_is_whole_from_its_first_start_on_and_no_zookeeper_is_asked(settings: Settings) -> None:
    assert finding(settings).verdict is Level.OK
    file = store_file(settings)
    assert file is not None
    session = SqliteSession(file)
    session.start()
    found = finding(settings)
    session.close(timedelta(seconds=10))

    assert (found.verdict, found.detail.partition(",")[0]) == (Level.OK, "whole")
    assert list(zookeeper_of(settings)) == []


def test_a_store_that_is_damaged_fails(settings: Settings) -> None:
    file = store_file(settings)
    assert file is not None
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no database" * 1000)

    found = finding(settings)
    assert (found.verdict, found.detail) == (Level.FAIL, "file is not a database")


def test_a_store_over_a_network_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_file_system", lambda _file: "nfs4")

    assert finding(settings).verdict is Level.FAIL


def test_a_store_that_may_not_be_looked_at_is_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)

    found = finding(settings)
    assert (found.verdict, found.advice) == (Level.WARN, "ask as the scheduler's user")
