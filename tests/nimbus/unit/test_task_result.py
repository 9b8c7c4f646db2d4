"""Results of tasks: accepted and refused ones, and their way from the task into END."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nimbus import task
from nimbus.domain.attempts.slots import End
from nimbus.domain.runs.task_run import Outcome
from nimbus.records import END
from nimbus.result import DEEPEST, LARGEST_BYTES, ResultError, decode, encode
from nimbus.worker.application import reports
from nimbus.worker.attempt.folder import AttemptFolder

ATTEMPT = "r1.plan.1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    folder = AttemptFolder(tmp_path / ATTEMPT)
    folder.work.mkdir(parents=True)
    return folder


@pytest.fixture
def context(folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> task.TaskContext:
    folder.context_file.write_text(
        json.dumps(
            {
                "pipeline": "p",
                "release": "a" * 64,
                "run_id": "r1",
                "task": "plan",
                "attempt": 1,
                "logical_date": "2026-01-01T00:00:00+00:00",
                "parameters": {},
                "inputs": {},
                "output": str(folder.output),
                "release_root": "/r",
            }
        )
    )
    monkeypatch.setenv(task.CONTEXT_VARIABLE, str(folder.context_file))
    task.context.cache_clear()
    yield task.context()  # type: ignore[misc]
    task.context.cache_clear()


def test_result_of_a_task_is_read_by_its_worker(folder: AttemptFolder, context: task.TaskContext) -> None:
    context.result(since="2026-01-01", rows=3, parts=["a", {"b": None}], name="ü")

    assert folder.result() == {"since": "2026-01-01", "rows": 3, "parts": ["a", {"b": None}], "name": "ü"}
    assert reports.text_in(folder.result_file) == folder.result_file.read_text()


def test_second_result_replaces_the_first(folder: AttemptFolder, context: task.TaskContext) -> None:
    context.result(a=1)
    context.result(b=2)

    assert folder.result() == {"b": 2}


def test_task_that_gives_no_result_has_none(folder: AttemptFolder) -> None:
    assert (folder.result(), reports.text_in(folder.result_file)) == (None, None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"x": "a" * LARGEST_BYTES}, "larger than 4096 bytes"),
        ({"x": object()}, "cannot be written as JSON"),
        ({"x": float("nan")}, "cannot be written as JSON"),
        ({"x": b"bytes"}, "cannot be written as JSON"),
        ({"x": "\ud800"}, "cannot be written as JSON"),
        ({"x": nested(DEEPEST)}, "more than 32 levels"),
    ],
)
def test_result_that_cannot_be_kept_is_refused_in_the_task(
    folder: AttemptFolder, context: task.TaskContext, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ResultError, match=words):
        context.result(**values)

    assert folder.result() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "must be a JSON object"),
        ("rows=3", "is not JSON"),
        ('{"x": NaN}', "NaN is no number"),
        ('{"x": "\\ud800"}', "cannot be written"),
        ("[" * 3000, "is not JSON"),
        ('{"x": "' + "a" * 5000 + '"}', "larger than 4096 bytes"),
        ('{"x": ' + "[" * 300 + "]" * 300 + "}", "more than 32 levels"),
    ],
)
def test_result_that_a_program_wrote_wrongly_is_refused(folder: AttemptFolder, text: str, words: str) -> None:
    folder.result_file.write_text(text)

    with pytest.raises(ResultError, match=words):
        folder.result()
    with pytest.raises(ResultError, match=words):
        decode((reports.text_in(folder.result_file) or "").encode())


def test_result_is_not_read_through_a_link(folder: AttemptFolder, tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"a": 1}')
    folder.result_file.symlink_to(tmp_path / "other")

    with pytest.raises(ResultError, match="no regular file"):
        folder.result()
    assert reports.text_in(folder.result_file) is None


def test_result_of_the_largest_size_is_taken() -> None:
    largest = {"x": "a" * (LARGEST_BYTES - len('{"x":""}'))}

    assert decode(encode(largest)) == largest
    assert len(encode(largest)) == LARGEST_BYTES


def test_result_of_most_levels_is_written_with_its_end() -> None:
    deepest = {"x": nested(DEEPEST - 1)}
    end = End(
        attempt=ATTEMPT,
        outcome=Outcome.SUCCEEDED,
        written_by="t",
        ended_at=NOW,
        result=decode(encode(deepest)),
    )

    assert END.decode(END.encode(end), "END").result == deepest
