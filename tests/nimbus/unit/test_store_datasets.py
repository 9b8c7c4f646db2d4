"""The leader's datasets: as a dictionary, though few of them are decoded."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest

from nimbus.adapters.store import datasets as store
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Version
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _dataset(place: int, number: int = 1) -> Dataset:
    run, task = RunId(f"p-{number}"), TaskName("t")
    version = Version(
        partition="", number=number, run=run, task=task, source=AttemptId(run, task, 1), output="o", at=_AT
    )
    name = DatasetName(f"d{place}")
    empty = Dataset(name=name, pipeline=PipelineName("p"), partition=Partitioning.WHOLE)
    return empty.with_version(version, lambda _old: True)


def test_each_dataset_is_the_newest_one_whichever_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_DECODED", 2)
    there = {_dataset(place).name: _dataset(place) for place in range(5)}
    kept = store.Datasets("/datasets", [(name, store.CODEC.encode(one)) for name, one in there.items()])

    assert dict(kept) == there
    for place in (0, 3, 6, 0):
        newer = _dataset(place, number=2 + place)
        there[newer.name] = kept[newer.name] = newer
        assert dict(kept) == there
    del kept[DatasetName("d0")], there[DatasetName("d0")]
    assert dict(kept) == there
    assert DatasetName("d0") not in kept
    assert len(kept) == len(there) == 5


def test_one_that_cannot_be_read_has_no_versions_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_DECODED", 1)
    name = DatasetName("d1")
    kept = store.Datasets("/datasets", [("d1", b"no record"), ("d2", store.CODEC.encode(_dataset(2)))])

    assert (kept[name].versions, kept[name].dropped) == ((), sys.maxsize)
    kept[name] = _dataset(1)
    assert kept[DatasetName("d2")] == _dataset(2)
    assert kept[name] == _dataset(1)
