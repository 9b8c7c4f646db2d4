"""Which outputs show that Spark wrote to them by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.worker.data.folder_checks import spark_write_in, state_of


@pytest.mark.parametrize(
    ("left", "written"),
    [
        (["t/_SUCCESS"], "t"),
        (["_SUCCESS"], "."),
        (["day/t/_delta_log/0.json"], "day/t"),
        (["t/_spark_metadata/0"], "t"),
        (["t/metadata/version-hint.text"], "t/metadata"),
        (["t/part-00000-3cb64dec-ca83-4abd-b2ea-6bebcdd6f9b7-c000.snappy.parquet"], "t"),
        (["t/part-00000"], "t"),
        (["report.json", "t/"], "t"),
        (["t/half=1/", "t/readme"], "t/half=1"),
        ([], None),
        (["report.json", "t/numbers.parquet"], None),
        (["t/part-12345678901234567890123456789012.parquet"], None),
    ],
)
def test_write_of_spark_is_known_by_its_marks_its_parts_and_empty_folders(
    tmp_path: Path, left: list[str], written: str | None
) -> None:
    before = state_of(tmp_path)

    for name in left:
        place = tmp_path / name
        (place if name.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            place.touch()

    assert spark_write_in(tmp_path, before) == (None if written is None else tmp_path / written)


def test_empty_output_shows_a_write_if_something_was_removed_from_it(tmp_path: Path) -> None:
    before = state_of(tmp_path)
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary").rmdir()

    assert spark_write_in(tmp_path, before) == tmp_path


def test_output_that_the_task_has_removed_shows_none(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    before = state_of(output)
    output.rmdir()

    assert spark_write_in(output, before) is None
