"""`telemetry` in the configuration: refusals and defaults."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.config import InvalidConfigurationError, Settings, load_settings

LINEAGE = "http://lineage:5000/api/v1/lineage"


def settings_with(folder: Path, telemetry: dict[str, Any]) -> Settings:
    document = {
        "zookeeper": {"hosts": "127.0.0.1:2181"},
        "storage": {"bucket": "nimbus"},
        "scheduler": {"state_dir": str(folder)},
        "worker": {"data": str(folder)},
        "telemetry": telemetry,
    }
    file = folder / "nimbus.yaml"
    file.write_text(json.dumps(document))
    return load_settings(file, {})


def test_there_is_none_by_default(tmp_path: Path) -> None:
    telemetry = settings_with(tmp_path, {}).telemetry

    assert (telemetry.traces, telemetry.lineage) == (None, None)
    assert telemetry.give_up_after == timedelta(hours=1)


def test_defaults_of_both(tmp_path: Path) -> None:
    both = {"traces": {"endpoint": "https://c/v1/traces"}, "lineage": {"url": LINEAGE}}
    telemetry = settings_with(tmp_path, both).telemetry

    assert telemetry.traces is not None
    assert telemetry.lineage is not None
    assert (telemetry.traces.timeout, telemetry.lineage.timeout) == (
        timedelta(seconds=10),
        timedelta(seconds=5),
    )
    assert not telemetry.lineage.spark


@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        ({"traces": {}}, "telemetry.traces.endpoint: is missing"),
        ({"traces": {"endpoint": "collector:4318"}}, "is not http(s)://host[:port]/path"),
        ({"traces": {"endpoint": "http://collector:4318"}}, "lacks the path, such as /v1/traces"),
        ({"traces": {"endpoint": "http://me:secret@collector/v1/traces"}}, "must hold neither credentials"),
        (
            {"traces": {"endpoint": "http://c/v1/traces?key=secret"}},
            "must hold neither credentials nor a query",
        ),
        ({"traces": {"endpoint": "http://c/v1/traces", "headers_file": "headers"}}, "headers_file"),
        ({"lineage": {}}, "neither url nor file is given: give one of them"),
        ({"lineage": {"url": LINEAGE, "file": "/tmp/x"}}, "url and file are given: give one of them"),
        ({"lineage": {"file": "/tmp/x", "headers_file": "/tmp/y"}}, "headers_file is given and url is not"),
        ({"lineage": {"file": "/tmp/x", "ca_file": "/tmp/y"}}, "ca_file is given and url is not"),
        ({"give_up_after": "0s"}, "give_up_after"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, telemetry: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        settings_with(tmp_path, telemetry)

    assert words in str(refused.value)
    assert "secret" not in str(refused.value)
