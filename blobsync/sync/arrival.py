"""What came of a fetch."""

from __future__ import annotations

from enum import Enum


class Arrival(Enum):
    """What came of a fetch."""

    FETCHED = "fetched"
    HERE = "here"
    """It was here already."""
    ELSEWHERE = "elsewhere"
    """Somebody else of this host receives it now. Ask again soon."""
