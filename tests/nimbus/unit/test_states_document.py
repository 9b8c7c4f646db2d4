"""docs/pipelines.md names all states of runs, tasks and attempts, classes of failure and trigger rules."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from nimbus.domain.needs import TABLE
from nimbus.domain.pipeline import FailureClass
from nimbus.domain.run import RunState
from nimbus.domain.task_run import Outcome, TaskState

_ENDINGS = (TaskState.SUCCEEDED, TaskState.SKIPPED, TaskState.FAILED, TaskState.NOT_RUN)
"""As the columns of the table."""
_PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()


def _section(title: str) -> str:
    return _PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _drawn(subject: str) -> set[str]:
    """Words of the part of the drawing that is about `subject`."""
    drawing = re.search(r"^```text\n(.*?)^```", _section("States"), re.MULTILINE | re.DOTALL)
    assert drawing
    part = re.search(rf"^{subject} (.*?)(?:^\n|\Z)", drawing[1], re.MULTILINE | re.DOTALL)
    assert part
    return set(re.findall(r"\w+", part[1]))


@pytest.mark.parametrize(("subject", "states"), [("run", RunState), ("task", TaskState)])
def test_drawing_has_exactly_the_states_of_a_run_and_of_a_task(subject: str, states: type[StrEnum]) -> None:
    assert _drawn(subject) == {state.value for state in states}


def test_drawing_has_exactly_the_outcomes_of_an_attempt() -> None:
    assert _drawn("attempt") == {"open", *(outcome.value for outcome in Outcome)}


def _rows(heading: str) -> set[str]:
    """The first name in code style of each row of the table below `heading`."""
    rows = _section("Failures and retries").partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return {match[1] for match in re.finditer(r"^\|[^`\n]*`(\w+)`", rows, re.MULTILINE)}


def test_tables_have_exactly_the_classes_of_failure_and_the_outcomes() -> None:
    outcomes = set(re.findall(r"\| `(\w+)` \| (?:yes|no)? ?\|", _section("Failures and retries")))

    assert _rows("class") == {failure.value for failure in FailureClass}
    assert outcomes == {outcome.value for outcome in Outcome}


def test_table_of_trigger_rules_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\|(.+)\|$", _section("Which tasks run"), re.MULTILINE)
    written = {rule: [re.split(",", cell)[0].strip() for cell in cells.split("|")] for rule, cells in rows}
    words = {"go": "go", "skip": "skip"}

    assert written == {
        rule.value: [words.get(by_state[state].value, "not run") for state in _ENDINGS]
        for rule, by_state in TABLE.items()
    }
