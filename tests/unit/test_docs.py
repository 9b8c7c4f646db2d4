"""What the documents say shows a guarantee must be there to show it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])

_NAMED = re.compile(r"\b((?:unit|property|contract|integration|chaos)/test_\w+\.py)(?:::(test_[\w*]+))?")
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def _missing(text: str) -> Iterator[str]:
    for file, test in _NAMED.findall(text):
        path = PROJECT / "tests" / file
        if not path.is_file():
            yield file
        elif test and not fnmatch.filter(_TEST.findall(path.read_text()), test):
            yield f"{file}::{test}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    assert list(_missing(document.read_text())) == []


def test_a_test_that_is_not_there_is_missed() -> None:
    here = f"unit/{Path(__file__).name}"
    text = f"`{here}`, `{here}::test_every_*`, `{here}::test_nothing`, `tests/unit/test_nowhere.py`"

    assert list(_missing(text)) == [f"{here}::test_nothing", "unit/test_nowhere.py"]


_COMMANDS_OF_DOLPHINSCHEDULER = (
    "START_PROCESS",
    "START_CURRENT_TASK_PROCESS",
    "RECOVER_TOLERANCE_FAULT_PROCESS",
    "RECOVER_SUSPENDED_PROCESS",
    "START_FAILURE_TASK_PROCESS",
    "COMPLEMENT_DATA",
    "SCHEDULER",
    "REPEAT_RUNNING",
    "PAUSE",
    "STOP",
    "RECOVER_WAITING_THREAD",
    "RECOVER_SERIAL_WAIT",
    "EXECUTE_TASK",
    "DYNAMIC_GENERATION",
)
"""Of `CommandType`."""


@pytest.mark.parametrize("command", _COMMANDS_OF_DOLPHINSCHEDULER)
def test_each_command_of_dolphinscheduler_has_a_row_that_names_a_test(command: str) -> None:
    lines = (PROJECT / "docs/coming-from.md").read_text().splitlines()

    (row,) = (line for line in lines if line.startswith(f"| {command} |"))
    assert _NAMED.search(row)
