"""Data from outside: what is verified before a task, and what its code gets."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from nimbus.domain.publications import Outside
from nimbus.task import OutsideError
from nimbus.worker.data.outside import OutsideRefusedError, verify_file
from tests.nimbus.unit.test_task_uris import a_context


def outside(path: Path, data: bytes) -> Outside:
    return Outside(uri=path.as_uri(), sha256=hashlib.sha256(data).hexdigest())


def test_file_is_compared_with_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "a b.csv"
    path.write_bytes(b"1")
    verify_file(outside(path, b"1"))

    with pytest.raises(OutsideRefusedError, match="was published with sha256:d4735e3a") as refused:
        verify_file(outside(path, b"2"))
    assert hashlib.sha256(b"1").hexdigest() not in str(refused.value)  # readers of runs may not read the file
    with pytest.raises(OutsideRefusedError, match="is no file on this host"):
        verify_file(outside(tmp_path, b"1"))


def test_code_of_a_task_gets_the_uri_and_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"partition": "", "run": "", "number": 7, "at": "2026-03-01T06:00:00+00:00"}
    here = {**one, "outside": "file:///in/a%20b.csv", "sha256": "a" * 64, "value": {"rows": 3}}
    there = {**one, "outside": "s3://in/1", "sha256": "", "value": None}
    task = replace(a_context(tmp_path, monkeypatch, None), pinned={"landing": [here, there]})
    local, remote = task.reads["landing"]

    assert (local.path, local.uri, local.value) == (Path("/in/a b.csv"), "file:///in/a%20b.csv", {"rows": 3})
    assert (remote.uri, remote.files(), remote.value) == ("s3://in/1", ["s3://in/1"], None)
    with pytest.raises(OutsideError, match="s3://in/1 is not on this host: open it by `uri`"):
        _ = remote.path
