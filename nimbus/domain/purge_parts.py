"""The parts of a finished run that can be purged."""

from __future__ import annotations

from enum import StrEnum


class Part(StrEnum):
    """Parts, in the order in which they are deleted."""

    LOGS = "logs"
    """Logs of its attempts, with Spark's event logs."""
    OUTPUTS = "outputs"
    """Outputs of its tasks in `worker.data`."""
    HISTORY = "history"
    """Its record, its results, and its entries in lists."""
