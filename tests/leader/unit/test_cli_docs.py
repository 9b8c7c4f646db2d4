"""docs/election.md has a row for each command of `python -m leader`, and for no other."""

from __future__ import annotations

import re
from pathlib import Path

from leader.cli.main import main

DOCS = Path(__file__).parents[3] / "docs" / "election.md"


def test_each_command_has_its_row() -> None:
    (operating,) = re.findall(r"^## Operating it$(.*?)^## ", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)", operating, re.MULTILINE)

    assert rows == list(main.commands)
