"""A child process with one role, and requests as JSON lines: `python -m ... ROLE ARGUMENT...`."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from typing import Any

_ROLES = {
    "engine": "EngineRole",
    "workers": "WorkersRole",
    "operator": "OperatorRole",
    "memory": "MemoryRole",
    "api": "ApiRole",
}


def _answer(role: Any, line: str) -> dict[str, Any]:
    question = json.loads(line)
    try:
        return {"value": getattr(role, question.pop("do"))(**question)}
    except Exception as exc:  # noqa: BLE001 - any failure is an answer to the request
        traceback.print_exc()
        return {"error": f"{type(exc).__name__}: {exc}"}


def main(words: list[str]) -> int:
    """Run one role of the benchmark."""
    name, *rest = words
    return play(getattr(importlib.import_module(f"tests.benchmark.engine.{name}_role"), _ROLES[name])(*rest))


def play(role: Any) -> int:
    """Answer requests until standard input ends."""
    try:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(_answer(role, line)) + "\n")
            sys.stdout.flush()
    finally:
        role.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
