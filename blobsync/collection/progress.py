"""How far a collection is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CollectionPhase(StrEnum):
    """What a collection does. It lists and reads again before it deletes."""

    LISTING = "listing"
    READING = "reading"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class CollectionProgress:
    """How far one phase is: objects listed, releases read, objects deleted.

    Attributes:
        phase: Which.
        done_count: How many so far.
        total_count: Of how many; 0: not known.
    """

    phase: CollectionPhase
    done_count: int
    total_count: int
