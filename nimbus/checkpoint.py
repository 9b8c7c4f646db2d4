"""The checkpoint of a task: a small JSON value, with which its next attempt begins.

Standard library only: tasks import it, also in clusters.
"""

from __future__ import annotations

import json
from typing import Any

from nimbus.result import check_levels

LARGEST_BYTES = 4096
"""Of the JSON text, in UTF-8. Put what is larger elsewhere, and its address into the checkpoint."""
FILE = "checkpoint.json"
"""Name of the file, in the folder `work` of the attempt, in which a task leaves its checkpoint."""


class CheckpointError(ValueError):
    """What a task gave as its checkpoint is not JSON, or is too large."""


def encode(value: Any) -> bytes:
    """A checkpoint as JSON.

    Raises:
        CheckpointError: it is nothing that JSON can say, or too large or too deep.
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
    """A checkpoint as its shortest text; None: there is none, such as in a file that is half written."""
    if data is None:
        return None
    try:
        return encode(json.loads(data)).decode()
    except (ValueError, RecursionError):
        return None
