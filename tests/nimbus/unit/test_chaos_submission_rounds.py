"""The record of the rounds at points of a submission: missing rounds, and the table."""

from __future__ import annotations

from pathlib import Path

from tests.nimbus.chaos.submission_rounds import PASSED, Round, missing, read_rounds, table
from tests.report import append


def played(
    point: str, victim: str, *, cluster: str = "yarn", verdict: str = PASSED, attempts: int = 1
) -> Round:
    return Round(
        cluster=cluster,
        point=point,
        victim=victim,
        attempts=attempts,
        executions=1,
        took_s=4.0,
        verdict=verdict,
    )


def test_rounds_are_played_in_each_cell_once_before_they_are_played_twice_in_one() -> None:
    assert list(missing([], "yarn", ["a", "b"], 2)) == 2 * [
        ("a", "scheduler"),
        ("a", "worker"),
        ("b", "scheduler"),
        ("b", "worker"),
    ]


def test_rounds_of_the_record_are_not_played_again_and_those_of_other_clusters_do_not_count() -> None:
    record = [played("a", "worker"), played("a", "worker"), played("a", "scheduler", cluster="connect")]

    assert list(missing(record, "yarn", ["a"], 2)) == [("a", "scheduler"), ("a", "scheduler")]


def test_record_of_two_calls_adds_up_in_the_table_with_what_has_not_passed(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    assert read_rounds(file) == []
    append(file, played("a", "worker"))
    append(file, played("a", "worker", verdict="it ran twice", attempts=2))
    append(file, played("b", "scheduler", cluster="connect"))

    assert table(read_rounds(file)) == [
        "| point | connect | yarn |",
        "| --- | --- | --- |",
        "| a | 0; 0 | 0; 2 (1 again, 1 not passed) |",
        "| b | 1; 0 | 0; 0 |",
    ]
