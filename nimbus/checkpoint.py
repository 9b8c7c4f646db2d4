"""The checkpoint of a task: a small JSON value that its next attempt reads.

Standard library only: tasks import it, also in clusters.
"""

from __future__ import annotations

import json
from typing import Any

from nimbus.result import check_levels

LARGEST_BYTES = 4096
"""Limit of the JSON text in UTF-8. Store larger data elsewhere, and its address in the checkpoint."""
FILE = "checkpoint.json"
"""Name of the checkpoint's file in the attempt's folder `work`."""


class CheckpointError(ValueError):
    """A task's checkpoint is not JSON, or is too large."""


def encode(value: Any) -> bytes:
    """A checkpoint as JSON.

    Raises:
        CheckpointError: it is not a JSON value, or too large or too deep.
    """
    try:
        data = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        check_levels(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise CheckpointError(f"the checkpoint cannot be written as JSON: {exc}") from exc
    if len(data) > LARGEST_BYTES:
        raise CheckpointError(
            f"the checkpoint is larger than {LARGEST_BYTES} bytes; write it elsewhere, "
            "and keep only what is needed to find it"
        )
    return data


def checked(data: bytes | None) -> str | None:
    """A checkpoint as its shortest JSON text; None if there is none, or the file is incomplete."""
    if data is None:
        return None
    try:
        return encode(json.loads(data)).decode()
    except (ValueError, RecursionError):
        return None
