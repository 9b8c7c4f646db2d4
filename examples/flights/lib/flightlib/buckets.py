"""Ranges of measured values. Pure: Spark's Python workers and the report run the same code."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

UNKNOWN = "unknown"
"""The bucket of missing values."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Ranges between ascending edges; an edge belongs to the range above it."""

    title: str
    unit: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.edges or list(self.edges) != sorted(set(self.edges)):
            raise ValueError(f"the edges of {self.title!r} must ascend, not {self.edges}")

    @property
    def labels(self) -> tuple[str, ...]:
        """All ranges, from low to high."""
        first, last = self.edges[0], self.edges[-1]
        between = (f"{low:g} to {high:g}" for low, high in pairwise(self.edges))
        return (f"below {first:g}", *between, f"{last:g} or more")

    def label(self, value: float | None) -> str:
        """The range of one value."""
        return UNKNOWN if value is None else self.labels[bisect_right(self.edges, value)]


WEATHER = {
    "visib": Buckets("Visibility", "miles", (1, 3, 10)),
    "precip": Buckets("Precipitation", "inches an hour", (0.01, 0.1, 0.3)),
    "wind_speed": Buckets("Wind", "miles an hour", (10, 20, 30)),
}
"""By the weather table's column."""

DELAY = Buckets("Departure delay", "minutes", (0, 15, 30, 60, 120))
