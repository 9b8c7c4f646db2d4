"""Checkpoints of tasks: accepted and refused ones, and their way to the worker and into END."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nimbus import task
from nimbus.checkpoint import LARGEST_BYTES, CheckpointError
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.runs.task_run import Outcome
from nimbus.records import END
from nimbus.worker import settlement
from nimbus.worker.application import reports
from nimbus.worker.attempt.folder import AttemptFolder

ATTEMPT = "r1.load.2"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DOCUMENT = {
    "pipeline": "p",
    "release": "a" * 64,
    "run_id": "r1",
    "task": "load",
    "attempt": 2,
    "logical_date": "2026-01-01T00:00:00+00:00",
    "parameters": {},
    "inputs": {},
    "output": "/nowhere",
    "release_root": "/r",
}


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    folder = AttemptFolder(tmp_path / ATTEMPT)
    folder.work.mkdir(parents=True)
    return folder


@pytest.fixture
def context(
    folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., task.TaskContext]]:
    def made(**more: Any) -> task.TaskContext:
        folder.context_file.write_text(json.dumps(DOCUMENT | more))
        monkeypatch.setenv(task.CONTEXT_VARIABLE, str(folder.context_file))
        task.context.cache_clear()
        return task.context()

    yield made
    task.context.cache_clear()


@pytest.mark.parametrize("value", [{"row": 3, "name": "ü"}, [1, 2], "text", 7, 0.5, True])
def test_checkpoint_of_a_task_is_read_by_its_worker(
    folder: AttemptFolder, context: Callable[..., task.TaskContext], value: Any
) -> None:
    context().checkpoint({"earlier": 1})
    context().checkpoint(value)

    kept = folder.checkpoint()
    assert kept is not None
    assert json.loads(kept) == value
    assert reports.text_in(folder.checkpoint_file) == kept


def test_next_attempt_is_told_the_last_checkpoint(context: Callable[..., task.TaskContext]) -> None:
    assert context(checkpoint='{"row":3}').last_checkpoint == {"row": 3}


def test_attempt_without_an_earlier_checkpoint_is_told_none(
    context: Callable[..., task.TaskContext],
) -> None:
    assert context().last_checkpoint is None


@pytest.mark.parametrize(
    "value", [{1, 2}, float("nan"), "x" * LARGEST_BYTES, "\ud800"], ids=["set", "nan", "large", "surrogate"]
)
def test_value_that_cannot_be_kept_is_refused_and_what_was_kept_stays(
    folder: AttemptFolder, context: Callable[..., task.TaskContext], value: Any
) -> None:
    context().checkpoint(1)

    with pytest.raises(CheckpointError):
        context().checkpoint(value)

    assert folder.checkpoint() == "1"


@pytest.mark.parametrize(
    "text",
    [b"", b'{"row":', b"NaN", b'"' + b"x" * LARGEST_BYTES + b'"', b'"\\ud800"', b"\xff", b"[" * 2000],
    ids=["empty", "half", "nan", "large", "surrogate", "no-utf8", "deep"],
)
def test_file_that_is_no_checkpoint_is_as_none(folder: AttemptFolder, text: bytes) -> None:
    folder.checkpoint_file.write_bytes(text)

    assert folder.checkpoint() is None


def test_link_in_place_of_the_file_is_not_followed(folder: AttemptFolder, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("1")
    folder.checkpoint_file.symlink_to(tmp_path / "other")

    assert (folder.checkpoint(), reports.text_in(folder.checkpoint_file)) == (None, None)


def test_end_of_a_lost_attempt_brings_what_its_folder_has(folder: AttemptFolder) -> None:
    folder.checkpoint_file.write_text(' {"row": 3}\n')
    claim = Claim(attempt=ATTEMPT, claimed_at=NOW, nonce="n", folder=str(folder.path))

    assert settlement.lost(ATTEMPT, claim, "gone", NOW).checkpoint == '{"row":3}'
    assert settlement.lost(ATTEMPT, replace(claim, folder=None), "gone", NOW).checkpoint is None
    assert settlement.lost(ATTEMPT, replace(claim, folder="/elsewhere"), "gone", NOW).checkpoint is None


def test_end_with_a_checkpoint_is_stored_and_one_of_before_has_none() -> None:
    end = End(attempt=ATTEMPT, outcome=Outcome.LOST, written_by="worker", ended_at=NOW, checkpoint="[1]")
    data = json.loads(END.encode(end))
    assert END.decode(json.dumps(data).encode(), "here") == end

    del data["checkpoint"]

    assert END.decode(json.dumps(data).encode(), "here").checkpoint is None
