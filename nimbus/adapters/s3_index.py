"""Keys of history in S3, and of its index, which lists newest first. See `nimbus.adapters.s3_history`."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.ids import RunId
from nimbus.domain.run_order import place_at

INDEX_MARK = b"1"
"""Some servers treat an empty object as a folder."""
REFUSED, ACCEPTED = "history/refusals/", "history/commands/"
"""Outcomes of commands that left ZooKeeper."""


def after(prefix: str, when: datetime) -> str:
    """What to list an index after, so that it gives what was created before a moment, to the second."""
    return f"{prefix}{place_at(when, '~')}"


def run_key(run: RunId) -> str:
    """Of the record."""
    return f"history/runs/{run}.json"


def results_key(run: RunId) -> str:
    """Of what its tasks gave."""
    return f"history/results/{run}.json"


def reused_key(run: RunId, by: RunId) -> str:
    """Says that a later run reuses what `run` did."""
    return f"history/reused/{run}/{by}"
