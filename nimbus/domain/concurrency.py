"""How many runs may be under way at once, and the order in which queued runs start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WhenFull(StrEnum):
    """What happens to a scheduled run while its pipeline has no room. Other runs always queue."""

    QUEUE = "queue"
    SKIP = "skip"
    """It is not created if a scheduled run of the pipeline is under way or queued."""
    REPLACE = "replace"
    """The oldest scheduled run is stopped; the new one starts once there is room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The limit of a pipeline. It counts the runs of all its releases together."""

    limit: int
    when_full: WhenFull = WhenFull.QUEUE
