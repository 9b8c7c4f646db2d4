"""The codes of problems: docs/api.md lists all codes that the API can answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.api.problems import ObjectNotFoundError, problem
from nimbus.domain.cluster.access import AccessDeniedError
from nimbus.domain.errors import RefusedError

ROOT = Path(__file__).parents[3]
PLACES = ("nimbus/api", "nimbus/access", "nimbus/engine", "nimbus/definition")
"""Packages whose errors become answers, or outcomes of commands."""
WITH_CODE = {
    ObjectNotFoundError.__name__: 0,
    RefusedError.__name__: 0,
    AccessDeniedError.__name__: 0,
    problem.__name__: 1,
}
"""Position of the code in a call."""


def codes_of(tree: ast.AST) -> Iterator[str]:
    """The codes in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WITH_CODE:
            at = WITH_CODE[node.func.id]
            if len(node.args) > at and isinstance(node.args[at], ast.Constant):
                yield str(ast.literal_eval(node.args[at]))


def spelled() -> dict[str, str]:
    """Each code, and a module that contains it."""
    modules = (path for place in PLACES for path in sorted((ROOT / place).rglob("*.py")))
    return {code: path.name for path in modules for code in codes_of(ast.parse(path.read_text()))}


def test_every_code_of_a_refusal_is_listed() -> None:
    listed = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs/api.md").read_text()))

    missing = {code: where for code, where in spelled().items() if code not in listed}
    assert missing == {}


@pytest.mark.parametrize("code", ["unknown_run", "no_attempt", "quarantined", "unknown_host", "bad_every"])
def test_codes_are_found_where_they_are_spelled(code: str) -> None:
    assert code in spelled()
