"""Stored samples of all records are read, and nothing of them is lost. See `tests.nimbus.stored_records`."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import fields
from typing import Any

import pytest

from nimbus import records, run_record
from nimbus.domain.run import RunHeader
from nimbus.domain.tasks import Tasks
from nimbus.records import RecordCodec
from tests.nimbus.stored_records import COMPRESSED, FILE, codecs, samples

STORED: dict[str, list[str]] = json.loads(FILE.read_text())
CODECS = dict(codecs())
ANEW = "`python -m tests.nimbus.stored_records` writes the samples anew; not for records that a release wrote"


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
