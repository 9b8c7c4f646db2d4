"""The result of a task: a small JSON object, which is committed with the attempt's END.

Standard library only: tasks import it, also in clusters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LARGEST_BYTES = 4096
"""Limit of the JSON text, in UTF-8. Put larger data into the task's output."""
DEEPEST = 32
"""Limit of nested objects and lists. Serializers fail at 255, and a task must not make END unwritable."""
FILE = "result.json"
"""Name of the file, in the folder `work` of the attempt, to which a task writes its result."""


class ResultError(ValueError):
    """The result that a task gave is not a JSON object, or is too large."""


def encode(values: Mapping[str, Any]) -> bytes:
    """A result as JSON.

    Raises:
        ResultError: the values are not representable in JSON, too large or too deep.
    """
    try:
        data = json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise ResultError(f"the result cannot be written as JSON: {exc}") from exc
    check_levels(values)
    return _bounded(data)


def decode(data: bytes) -> dict[str, Any]:
    """A result from JSON. Raises ResultError."""
    try:
        result = json.loads(_bounded(data), parse_constant=_refuse)
        encode(result)  # refuses, for example, half a surrogate pair, which UTF-8 cannot encode
    except ResultError:
        raise
    except (ValueError, RecursionError) as exc:
        raise ResultError(f"the result is not JSON: {exc}") from exc
    if not isinstance(result, dict):
        raise ResultError(f'the result must be a JSON object such as {{"rows": 3}}, not {result!r:.50}')
    return result


def _bounded(data: bytes) -> bytes:
    if len(data) > LARGEST_BYTES:
        raise ResultError(
            f"the result is larger than {LARGEST_BYTES} bytes; put it into the task's output, "
            "and only what others need to find it into the result"
        )
    return data


def check_levels(value: object, left: int = DEEPEST) -> None:
    """Raise ResultError if a value has more than `left` levels of objects and lists."""
    if not isinstance(value, (dict, list, tuple)):
        return
    if left == 0:
        raise ResultError(f"the value has more than {DEEPEST} levels; put it into the task's output")
    for inner in value.values() if isinstance(value, dict) else value:
        check_levels(inner, left - 1)


def _refuse(word: str) -> None:
    raise ResultError(f"the result is not JSON: {word} is no number there")
