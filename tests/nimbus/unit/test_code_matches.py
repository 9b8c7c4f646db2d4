"""A `match` decides about each kind of value: a catch-all would ignore a new kind without a word.

mypy refuses a `match` that leaves out a kind (`exhaustive-match`), unless it has a catch-all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

REASONS = {
    "leader/zookeeper/acl.py": {"_each": "answers of kazoo"},
    "nimbus/adapters/store/leader_store.py": {"_operations": "writes, passed to an argument of just these"},
    "nimbus/adapters/store/transaction.py": {"_merged": "pairs, about which mypy cannot tell"},
    "nimbus/api/explain/admission.py": {"why_not_admitted": "reasons, passed to an argument of just these"},
    "nimbus/bootstrap/resources.py": {"secret_provider": "places of plug-ins"},
    "nimbus/config/settings.py": {"_derived": "names of settings", "_plain": "values of any type"},
    "nimbus/config/values.py": {"described": "values of users"},
    "nimbus/definition/json_schema.py": {"_texts": "Python's syntax tree"},
    "nimbus/domain/pipelines/parameters.py": {"has_type": "names of types in a definition"},
    "nimbus/templates/evaluation.py": {"value": "`_made` takes the rest of Jinja's syntax tree, and refuses"},
    "nimbus/engine/state/__init__.py": {"wake": "all other kinds of keys go back to the work queue"},
}
"""Functions that may have a catch-all, and what it takes."""


def catch_alls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, int]]:
    """Function and line of each `case` for everything that neither raises nor calls `assert_never`."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(node, ast.match_case) and _takes_all(node) and not _refuses(node.body[0]):
            yield inside, node.pattern.lineno
        yield from catch_alls(node, inside)


def _takes_all(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


def _refuses(first: ast.stmt) -> bool:
    return isinstance(first, ast.Raise) or ast.unparse(first).startswith("assert_never(")


def test_no_match_over_our_own_kinds_has_a_catch_all() -> None:
    found = {
        (str(path.relative_to(ROOT)), function): line
        for package in ("nimbus", "leader", "blobsync")
        for path in sorted((ROOT / package).rglob("*.py"))
        for function, line in catch_alls(ast.parse(path.read_text()))
    }
    allowed = {(path, function) for path, reasons in REASONS.items() for function in reasons}

    silent = {key: line for key, line in found.items() if key not in allowed}
    assert not silent, f"list the kinds that are ignored, or call assert_never: {silent}"
    assert not allowed - found.keys(), "a reason without a catch-all"
