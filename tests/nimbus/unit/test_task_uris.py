"""Names of outputs and inputs for readers on other hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from nimbus import task as nimbus_task
from nimbus.task import CONTEXT_VARIABLE, TaskContext, context

PREFIX = "sums/run1/clean/1-00112233aabbccdd"


def a_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any] | None) -> TaskContext:
    document = {
        "pipeline": "sums",
        "release": "0" * 64,
        "run_id": "run1",
        "task": "use",
        "attempt": 1,
        "logical_date": "2026-03-01T06:00:00+00:00",
        "parameters": {},
        "inputs": {"clean": str(tmp_path / "in")},
        "output": "/srv/data/sums/run1/use/1",
        "release_root": "/srv/release",
    }
    if data is not None:
        document["data"] = data
    file = tmp_path / "context.json"
    file.write_text(json.dumps(document))
    monkeypatch.setenv(CONTEXT_VARIABLE, str(file))
    context.cache_clear()
    try:
        return context()
    finally:
        context.cache_clear()


def test_uris_of_data_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        "uri": "s3://bucket/data",
        "output": "sums/run1/use/1-ff",
        "inputs": {"clean": f"{PREFIX}/manifest-{'0' * 64}.json"},
    }
    task = a_context(tmp_path, monkeypatch, data)

    assert task.output_uri == "s3://bucket/data/sums/run1/use/1-ff"
    assert task.input_uri("clean") == f"s3://bucket/data/{PREFIX}"
    assert task.input_uri("clean", "data") == f"s3://bucket/data/{PREFIX}/data"
    assert replace(task, inputs={}).input_uri("clean") == f"s3://bucket/data/{PREFIX}", "it copies nothing"


def test_uris_of_data_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        "uri": "file:///srv/data",
        "output": "sums/run1/use/1",
        "inputs": {"clean": f"sums/run1/clean/2.manifest-{'0' * 64}.json"},
    }
    task = a_context(tmp_path, monkeypatch, data)

    assert task.output_uri == "file:///srv/data/sums/run1/use/1"
    assert task.input_uri("clean", "data/") == f"file://{tmp_path}/in/data"


def test_uris_of_a_context_that_was_written_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_context(tmp_path, monkeypatch, None)

    assert task.output_uri == "file:///srv/data/sums/run1/use/1"
    assert task.input_uri("clean") == f"file://{tmp_path}/in"


def test_files_of_an_input_are_those_that_were_committed_and_are_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data/part-1", "data/part-0", "data/_SUCCESS", "data/.part-0.crc", "_tmp/part", "other"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    data = {"uri": "s3://b/d", "output": "o", "inputs": {"clean": f"{PREFIX}/manifest-{'0' * 64}.json"}}
    task = a_context(tmp_path, monkeypatch, data)

    top = f"s3://b/d/{PREFIX}"
    assert task.input_files("clean", "data") == [f"{top}/data/part-0", f"{top}/data/part-1"]
    assert task.input_files("clean") == [f"{top}/data/part-0", f"{top}/data/part-1", f"{top}/other"]


class Elsewhere(dict[str, Path]):
    """Inputs on another host, which knows their files."""

    def files(self, task: str) -> list[PurePosixPath]:
        assert task == "clean"
        return [PurePosixPath(name) for name in ("other", "data/part-1", "data/_SUCCESS", "data/part-0")]


def test_files_of_an_input_that_is_elsewhere_are_named_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nimbus_task, "_wrapped", Elsewhere)
    data = {"uri": "s3://b/d", "output": "o", "inputs": {"clean": f"{PREFIX}/manifest-{'0' * 64}.json"}}
    task = a_context(tmp_path, monkeypatch, data)

    top = f"s3://b/d/{PREFIX}"
    assert task.input_files("clean", "data/") == [f"{top}/data/part-0", f"{top}/data/part-1"]
    assert task.input_files("clean") == [f"{top}/data/part-0", f"{top}/data/part-1", f"{top}/other"]
