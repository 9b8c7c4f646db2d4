"""Stored samples of all records are read, and nothing of them is lost. See `tests.nimbus.stored_records`."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import nimbus
from nimbus import records, run_record
from nimbus.domain.runs.run import RunHeader
from nimbus.domain.runs.tasks import Tasks
from nimbus.records import RecordCodec
from tests.nimbus import stored_records
from tests.nimbus.stored_records import COMPRESSED, FILE, RELEASED, codecs, samples

STORED: dict[str, list[str]] = json.loads(FILE.read_text())
CODECS = dict(codecs())
ANEW = "`python -m tests.nimbus.stored_records` writes the samples anew"


def test_every_kind_of_record_has_a_stored_sample() -> None:
    assert STORED.keys() == {*CODECS, "run"}, ANEW


@pytest.mark.parametrize(("name", "codec"), CODECS.items(), ids=CODECS)
def test_stored_record_is_read_and_written_as_it_is_stored(name: str, codec: RecordCodec[Any]) -> None:
    for text in STORED[name]:
        assert codec.encode(codec.decode(text.encode(), name)).decode() == text
    assert [codec.encode(one).decode() for one in samples(codec)] == STORED[name], ANEW


def test_stored_run_is_read_and_written_as_it_is_stored() -> None:
    in_history, live, *below = (text.encode() for text in STORED["run"])
    nodes = {"": live} | dict(zip(COMPRESSED, map(b64decode, below), strict=True))
    run = records.RUN.decode(in_history, "run")

    assert json.loads(in_history).keys() == {"schema", "tasks", *(field.name for field in fields(RunHeader))}
    assert records.RUN.encode(run) == in_history
    assert Tasks(run.tasks.values()) == run.tasks
    assert run_record.decode(nodes, "run") == run
    assert run_record.encode_new(run) == nodes


def keeps(new: Any, old: Any) -> bool:
    """Whether a document has all that an older one has; it may have more fields."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and keeps(new[name], old[name]) for name in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(keeps, new, old))
    return bool(new == old)


@pytest.mark.parametrize("file", [FILE, *sorted(RELEASED.glob("*.json"))], ids=lambda file: file.stem)
def test_records_of_each_release_are_read_and_nothing_of_them_is_lost(file: Path) -> None:
    for name, texts in json.loads(file.read_text()).items():
        codec = CODECS.get(name, records.RUN)
        for text in texts[: 1 if name == "run" else None]:
            again = codec.encode(codec.decode(text.encode(), name))
            assert keeps(json.loads(again), json.loads(text)), name
    in_history, live, *below = (text.encode() for text in json.loads(file.read_text())["run"])
    nodes = {"": live} | dict(zip(COMPRESSED, map(b64decode, below), strict=True))
    assert run_record.decode(nodes, "run") == records.RUN.decode(in_history, "run")


def test_document_that_lacks_something_of_an_older_one_is_noticed() -> None:
    old = {"a": [{"b": 1}]}

    assert keeps({"a": [{"b": 1, "c": 2}]}, old)
    assert not any(keeps(new, old) for new in ({}, {"a": []}, {"a": [{"c": 1}]}, {"a": [{"b": 2}]}))


def test_samples_of_a_release_are_frozen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FILE", "RELEASED"):
        monkeypatch.setattr(stored_records, name, tmp_path / name)
    stored_records.main(["--freeze"])

    assert json.loads((tmp_path / "RELEASED" / f"{nimbus.__version__}.json").read_text()) == STORED
    with pytest.raises(FileExistsError):
        stored_records.main(["--freeze"])
