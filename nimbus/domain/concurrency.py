"""How many runs may be under way at once, and in which order queued ones start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WhenFull(StrEnum):
    """What becomes of a scheduled run while its pipeline has no room. Others always queue."""

    QUEUE = "queue"
    SKIP = "skip"
    """It is not created if a scheduled run of the pipeline is under way or queued."""
    REPLACE = "replace"
    """The oldest scheduled run is stopped; the new one starts once there is room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Of a pipeline: all of its releases together."""

    limit: int
    when_full: WhenFull = WhenFull.QUEUE
