"""First rows of files, which tasks have written: bounded, whatever they contain."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from nimbus.definition.apart import run_apart
from nimbus.web.task import first_rows
from nimbus.web.task.first_rows import COLUMNS, ROWS, shown


def _size(found: dict[str, Any]) -> int:
    return len(json.dumps(found))


def test_csv_has_columns_with_types_and_rows() -> None:
    found = shown("csv", b'\xef\xbb\xbfid;sum;name\n1;2.5;"a\nb"\n2;;<b>\n')

    assert found["columns"] == [("id", "integer"), ("sum", "number"), ("name", "text")]
    assert found["rows"] == [["1", "2.5", "a\nb"], ["2", "", "<b>"]]


@pytest.mark.parametrize(
    ("data", "columns", "rows"),
    [
        (b'{"a": 1, "b": "x"}\n{"a": 2.5, "c": null}\n', ["a", "b", "c"], [["1", "x", ""], ["2.5", "", ""]]),
        (b'[{"a": true}, {"a": [1, {"b": 2}]}]', ["a"], [["true"], ['[1, {"b": 2}]']]),
        (b'{"rows": 7, "days": [1]}', ["key", "value"], [["rows", "7"], ["days", "[1]"]]),
    ],
)
def test_json_of_objects_is_a_table(data: bytes, columns: list[str], rows: list[list[str]]) -> None:
    found = shown("json", data)

    assert ([name for name, _ in found["columns"]], found["rows"]) == (columns, rows)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("csv", b",".join(b"column_%d" % n for n in range(10_000)) + b"\n" + b"1," * 10_000),
        ("csv", b"a\n" + b"x" * (256 << 10)),
        ("csv", b'a\n"' + b"x\n" * (100 << 10)),
        ("csv", b""),
        ("csv", b"\xff\xfe<script>\n\xff\n"),
        ("json", b"[" * 100_000),
        ("json", b'{"a":' * 100_000),
        ("json", b'{"a": ' + b"9" * 10_000 + b"}"),
        ("json", b'{"a": "\\ud800", "\\u202e": 1}'),
        ("json", b"[1, 2]"),
        ("json", b"[{}]"),
        ("json", b"NaN"),
        ("json", b'{"a": NaN}\n' * 1_000),
        ("json", b'{"' + b"k" * 100_000 + b'": {"' + b"v" * 100_000 + b'": 1}}'),
        ("text", b"x" * (256 << 10)),
        ("text", "\u2028".encode() * 80_000),
        ("text", b"\n" * (256 << 10)),
        ("text", b"\xc3(" * 1_000),
    ],
)
def test_hostile_files_give_a_bounded_answer(kind: str, data: bytes) -> None:
    found = shown(kind, data)

    assert found.keys() & {"rows", "text"}
    assert len(found.get("rows", ())) <= ROWS
    assert len(found.get("columns", ())) <= COLUMNS
    assert _size(found) < 130_000


@pytest.mark.parametrize(
    ("value", "text"),
    [(1 / 3, "0.3333"), (1e-9 / 3, "3.333e-10"), (12345678.9, "12345678.9"), (float("nan"), "nan"), (2, "2")],
)
def test_fractions_are_short(value: float, text: str) -> None:
    assert first_rows._cell(value) == text


def test_bytes_that_are_no_text_are_not_shown() -> None:
    assert shown("csv", b"a\0b") == {"why": "It is no text."}


def _parquet(columns: dict[str, Any], **options: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def _apart(data: bytes) -> subprocess.CompletedProcess[bytes]:
    return run_apart("nimbus.web.task.first_rows", "parquet", given=data, within_s=120)


def test_parquet_has_its_schema_and_first_rows_within_the_limits_of_the_process() -> None:
    pytest.importorskip("pyarrow")
    data = _parquet({"id": range(1_000), "a.b": ["<b>"] * 1_000, "raw": [b"\xff\0"] * 1_000})

    done = _apart(data)

    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert found["columns"] == [["id", "int64"], ["a.b", "string"], ["raw", "binary"]]
    assert (found["rows"][1], len(found["rows"]), found["rows_total"]) == (["1", "<b>", "ff00"], ROWS, 1_000)


@pytest.mark.thorough
def test_parquet_that_expands_ends_at_the_limit_of_memory() -> None:
    pytest.importorskip("pyarrow")
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    bomb = _parquet({"a": ["x" * (450 << 20)]}, **options)

    done = _apart(bomb)

    assert len(bomb) < 1 << 20
    assert done.returncode != 0 or "why" in json.loads(done.stdout)


def test_damaged_parquet_is_refused() -> None:
    pytest.importorskip("pyarrow")
    whole = _parquet({"a": range(100)})
    giant = b"PAR1" + b"\xff" * 100 + b"\xff\xff\xff\x7fPAR1"

    for damaged in (b"", b"PAR1", whole[:-20] + whole[-8:], giant):
        assert "cannot be read as Parquet" in shown("parquet", damaged)["why"]


def test_columns_of_a_wide_parquet_file_are_bounded() -> None:
    pytest.importorskip("pyarrow")
    found = shown("parquet", _parquet({f"c{n}": [n] for n in range(300)}))

    assert (len(found["columns"]), found["columns_total"], found["rows"][0][-1]) == (COLUMNS, 300, "39")


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert shown("parquet", b"PAR1") == {"why": "To show Parquet, this scheduler needs the package pyarrow."}


def test_process_ends_at_its_limit_of_processor_time() -> None:
    code = (
        "import nimbus.web.task.first_rows as rows, itertools\n"
        "rows.CPU_S, rows.shown = 0.2, lambda *_: list(filter(None, itertools.repeat(0)))\n"
        "rows.main('csv')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], input=b"", timeout=120, check=False)

    assert done.returncode == -signal.SIGPROF
    assert first_rows.CPU_S <= 10
