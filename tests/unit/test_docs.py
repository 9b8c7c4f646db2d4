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
