"""A class name means one thing in all three packages, so that no reader must look up which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for package in ("nimbus", "leader", "blobsync"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    assert "Scheduler" in places
