"""The checks of the benchmark of tasks find what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.tasks.laws import committed_once, none_left, started_once
from tests.benchmark.tasks.marks import Mark, check_once, count_ends, gaps_ms, read_marks, span_s


def _ran(task: str, start_ms: int, end_ms: int, attempt: int = 1) -> list[Mark]:
    return [
        Mark("start", start_ms * 1_000_000, 1, "run", task, attempt),
        Mark("end", end_ms * 1_000_000, 1, "run", task, attempt),
    ]


def test_marks_are_read_from_lines(tmp_path: Path) -> None:
    file = tmp_path / "marks"
    assert (read_marks(file), count_ends(file)) == ([], 0)
    file.write_text("start 5000000 1 run a 1\nend 9000000 1 run a 1\n")

    assert read_marks(file) == _ran("a", 5, 9)
    assert count_ends(file) == 1


def test_gaps_are_between_an_end_and_the_next_start_of_a_run() -> None:
    marks = [*_ran("b", 12, 15), *_ran("a", 5, 9), *_ran("c", 16, 20)]

    assert gaps_ms(marks) == [3.0, 1.0]
    assert span_s(marks) == 0.015


@pytest.mark.parametrize(
    "marks",
    [_ran("a", 1, 2), [*_ran("a", 1, 2), *_ran("b", 3, 4)[:1]], [*_ran("a", 1, 2), *_ran("b", 3, 4) * 2]],
    ids=["missing", "not ended", "twice"],
)
def test_check_refuses_tasks_that_have_not_run_once(marks: list[Mark]) -> None:
    check_once([*_ran("a", 1, 2), *_ran("b", 3, 4)], 2)
    with pytest.raises(BenchFailedError):
        check_once(marks, 2)


@pytest.mark.parametrize(
    "outcomes",
    [
        {"a": ["succeeded"]},
        {"a": ["succeeded"], "b": ["lost"]},
        {"a": ["succeeded"], "b": ["succeeded", "succeeded"]},
        {"a": ["succeeded"], "b": ["succeeded", "lost"]},
        {"a": ["succeeded"], "b": []},
    ],
    ids=["missing", "lost", "twice", "after success", "never"],
)
def test_law_finds_tasks_that_are_not_committed_once(outcomes: dict[str, list[str | None]]) -> None:
    good = {"a": ["succeeded"], "b": ["lost", "succeeded"]}

    assert list(committed_once("record", good, 2)) == []
    assert len(list(committed_once("record", outcomes, 2))) == 1


@pytest.mark.parametrize(
    "marks",
    [[*_ran("a", 1, 2), *_ran("a", 3, 4)], _ran("a", 1, 2)[:1]],
    ids=["an attempt twice", "no end"],
)
def test_law_finds_code_that_did_not_start_once(marks: list[Mark]) -> None:
    assert list(started_once([*_ran("a", 1, 2)[:1], *_ran("a", 3, 4, attempt=2)], 1)) == []
    assert len(list(started_once(marks, 1))) == 1


def test_law_finds_processes_that_are_left() -> None:
    assert list(none_left(["executor", "worker"], {"executor": 1, "worker": 1})) == []
    assert len(list(none_left(["executor", "executor", "drivers"], {"executor": 1, "worker": 1}))) == 2
