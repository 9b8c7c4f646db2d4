"""docs/pipelines.md names all states of runs, tasks and attempts, classes of failure and trigger rules.

docs/worker.md has the states and instructions of an attempt by their names in the code.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest

from nimbus.attempt import model as m
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.domain.starts.needs import TABLE

_ENDINGS = (TaskState.SUCCEEDED, TaskState.SKIPPED, TaskState.FAILED, TaskState.NOT_RUN)
"""As the columns of the table."""
_DOCS = Path(__file__).parents[3] / "docs"
_PAGE = (_DOCS / "pipelines.md").read_text()


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


def test_map_of_the_worker_has_the_states_and_instructions_of_an_attempt() -> None:
    part = (
        (_DOCS / "worker.md")
        .read_text()
        .partition("\n## The states of an attempt\n")[2]
        .partition("\n## ")[0]
    )
    drawing, table = part.split("```")[1:]
    states = {words.title().replace(" ", "") for words in re.findall(r"[A-Z]{4,}(?: [A-Z]+)?", drawing)}
    instructions = {
        name
        for cell in re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }

    assert states - {"Sigkill"} == {state.__name__ for state in get_args(m.State)}
    assert instructions < {instruction.__name__ for instruction in get_args(m.Instruction)}
