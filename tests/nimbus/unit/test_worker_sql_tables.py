"""SQL tasks: the views of needed tasks, and parameters as markers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nimbus.worker.driver.sql_task import SqlTaskError, folders_of, format_of, markers, views
from tests.nimbus.unit.test_worker_sql_template import TASK


def test_tables_of_needed_tasks_that_the_sql_names_are_views() -> None:
    folders = {"load-all": ["data", "orders", "odd name"], "rates": ["data", "eu-west"]}

    found = views(folders, "SELECT * FROM LOAD_ALL_orders JOIN load_all; INSERT INTO x TABLE rates_eu_west")

    assert found == {
        "load_all": ("load-all", "data"),
        "load_all_orders": ("load-all", "orders"),
        "rates_eu_west": ("rates", "eu-west"),
    }


def test_two_tables_with_the_name_of_one_view_are_refused_if_the_sql_uses_it() -> None:
    folders = {"load": ["x"], "load-x": ["data"]}

    assert views(folders, "SELECT 1 FROM other") == {}
    with pytest.raises(SqlTaskError, match="two tables of needed tasks would both be the view 'load_x'"):
        views(folders, "SELECT 1 FROM load_x")


def test_tables_are_the_folders_with_parquet_files(tmp_path: Path) -> None:
    for name in (
        "data/part-0.parquet",
        "orders/day=1/part-0.snappy.parquet",
        "orders/_SUCCESS",
        "notes/read.txt",
        "top.parquet",
        "_spark_metadata/x.parquet",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert folders_of(replace(TASK, inputs={"load": tmp_path}), "load") == ["data", "orders"]


def test_statement_gets_only_the_parameters_that_it_names() -> None:
    parameters = {"day": "2026-01-01", "rows": 3, "d": True}

    assert markers("SELECT :day, CAST(x AS STRUCT<rows: INT>), a::int", parameters) == {"day": "2026-01-01"}
    assert markers("SELECT :rows LIMIT :rows", parameters) == {"rows": 3}
    assert markers("SELECT 1", parameters) == {}
    assert markers("SET x = ':day' -- :rows", parameters) == {}


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("file:///in/a%20b.CSV.gz", "csv"),
        ("s3://in/day.parquet/", "parquet"),
        ("s3a://in/x.jsonl", "json"),
        ("https://in/x.json.bz2", "json"),
    ],
)
def test_format_of_data_from_outside_is_told_by_their_name(uri: str, found: str) -> None:
    assert format_of(uri) == found


@pytest.mark.parametrize("uri", ["s3://in/csv", "file:///in/day/", "s3://in/x.xlsx"])
def test_data_from_outside_of_an_unknown_format_are_refused_with_what_to_do(uri: str) -> None:
    with pytest.raises(SqlTaskError, match=r"name it so, or read it by a Python task"):
        format_of(uri)
