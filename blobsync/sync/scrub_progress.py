"""How far the scrub is. A value, so that whoever asks never waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """Of the rounds that this process makes; of several on one store, one does each.

    Attributes:
        is_running: A round is under way.
        done_releases: Releases that it, or else the last one, has been through.
        total_releases: Of how many.
        done_objects: Packs and large files verified in it.
        damaged_objects: Put away, since the start of the process.
        failed_objects: That the disk did not give, since the start of the process.
        finished_rounds: Since the start of the process.
        finished_at: End of the last of them, for people.
    """

    is_running: bool = False
    done_releases: int = 0
    total_releases: int = 0
    done_objects: int = 0
    damaged_objects: int = 0
    failed_objects: int = 0
    finished_rounds: int = 0
    finished_at: datetime | None = None
