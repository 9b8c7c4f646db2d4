"""The parts of a finished run that can be purged."""

from __future__ import annotations

from enum import StrEnum


class Part(StrEnum):
    """In the order in which they go."""

    LOGS = "logs"
    """Of its attempts, with Spark's event logs."""
    OUTPUTS = "outputs"
    """What its tasks left in `worker.data`."""
    HISTORY = "history"
    """Its record, its results, and its places in lists."""
