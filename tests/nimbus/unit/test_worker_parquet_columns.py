"""Columns of published tables, compared with what pyarrow has written."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nimbus.attempt.model import Story
from nimbus.domain.attempts.slots import Holder
from nimbus.domain.data.publications import Table
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt import held_attempt
from nimbus.worker.attempt.held_attempt import HeldAttempt
from nimbus.worker.attempt.verdict import Ending
from nimbus.worker.data.parquet_columns import MAX_BYTES, MAX_COLUMNS, table_in
from nimbus.worker.data.places import FolderPlace
from tests.nimbus.worker_bench import Bench

COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "flag": (pa.bool_(), "boolean"),
    "tiny": (pa.int8(), "tinyint"),
    "small": (pa.int16(), "smallint"),
    "number": (pa.int32(), "int"),
    "id": (pa.int64(), "bigint"),
    "count": (pa.uint32(), "int unsigned"),
    "ratio": (pa.float32(), "float"),
    "price": (pa.float64(), "double"),
    "amount": (pa.decimal128(12, 2), "decimal(12,2)"),
    "name": (pa.string(), "string"),
    "raw": (pa.binary(), "binary"),
    "day": (pa.date32(), "date"),
    "at": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "local": (pa.timestamp("us"), "timestamp_ntz"),
    "tags": (pa.list_(pa.string()), "array<string>"),
    "deep": (pa.list_(pa.list_(pa.int32())), "array<array<int>>"),
    "rates": (pa.map_(pa.string(), pa.float64()), "map<string,double>"),
    "place": (pa.struct([("x", pa.int32()), ("y", pa.string())]), "struct<x:int,y:string>"),
    "places": (pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])), "array<struct<x:int,y:string>>"),
}


def write(path: Path, kinds: dict[str, pa.DataType]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(list(kinds.items()))
    pq.write_table(pa.table({name: [] for name in kinds}, schema=schema), path)


def test_columns_have_the_names_and_types_of_the_table(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {name: kind for name, (kind, _) in COLUMNS.items()})

    assert table_in(tmp_path) == Table(columns={name: shown for name, (_, shown) in COLUMNS.items()})


def test_table_in_the_folder_data_comes_first_and_has_the_columns_of_its_folders(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"other": pa.int32()})
    write(tmp_path / "data" / "day=2026-01-01" / "l%C3%A4nder=de" / "part-0.parquet", {"x": pa.int32()})
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / "_a.parquet").touch()

    assert table_in(tmp_path) == Table(columns={"x": "int", "day": "partition", "länder": "partition"})


def test_columns_are_bounded(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {f"c{number}": pa.int32() for number in range(150)})
    write(tmp_path / "b" / "data" / "a.parquet", {f"{'c' * 100}{number}": pa.int32() for number in range(90)})
    wide = pa.struct([(f"field_{number}", pa.int32()) for number in range(100)])
    write(tmp_path / "c" / "a.parquet", {"wide": wide})

    many, long, cut = (table_in(tmp_path / place) for place in ("", "b", "c"))

    assert many is not None
    assert long is not None
    assert cut is not None
    assert (len(many.columns), many.more) == (MAX_COLUMNS, 50)
    assert len(long.columns) + long.more == 90
    assert len(str(dict(long.columns))) <= MAX_BYTES
    assert (len(cut.columns["wide"]), cut.columns["wide"][-1]) == (200, "…")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 50, b"\xff" * 20 + b"\xff\xff\xff\xffPAR1"])
def test_file_that_is_no_parquet_has_no_columns(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(content)

    assert table_in(tmp_path) is None


def test_output_without_a_table_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n")
    (tmp_path / "data").symlink_to(tmp_path)
    (tmp_path / "b.parquet").symlink_to("a.csv")

    assert table_in(tmp_path) is None
    assert table_in(tmp_path / "missing") is None


def test_broken_footers_raise_nothing(tmp_path: Path) -> None:
    path, rng = tmp_path / "a.parquet", random.Random(1)
    write(path, {name: kind for name, (kind, _) in COLUMNS.items()})
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    for _ in range(500):
        broken = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3, 20))):
            broken[rng.randrange(len(whole) - 8 - length, len(whole) - 8)] = rng.randrange(256)
        path.write_bytes(broken)
        found = table_in(tmp_path)
        assert found is None or len(found.columns) <= MAX_COLUMNS


@pytest.mark.parametrize("publishes", [True, False])
def test_end_of_an_attempt_whose_output_is_published_has_its_columns(
    tmp_path: Path, publishes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    order = replace(bench.order("task.py"), publishes=publishes)
    held = HeldAttempt(order=order, plan=bench.startup().plan, folder=bench.folder())
    bench.close()
    held.claim, held.output = held.new_claim(Holder.PROCESS), tmp_path / "output"
    write(held.output / "a.parquet", {"x": pa.int32()})
    stored = Ending(Outcome.SUCCEEDED, "", 0), "bench/run1/task/1"
    monkeypatch.setattr(held_attempt, "committed", lambda *_args, **_more: stored)

    held.commit(FolderPlace(bench.data), lambda: None)

    assert held.ended(Story(0), "runner").table == (Table(columns={"x": "int"}) if publishes else None)


def test_endless_number_in_a_footer_ends(tmp_path: Path) -> None:
    footer = b"\x15" + b"\xff" * (1 << 20)
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")

    assert table_in(tmp_path) is None
