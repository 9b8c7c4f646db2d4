"""The headline figures, from the small tables of the delay tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flightlib.buckets import DELAY

Row = Mapping[str, Any]

FEW = 100
"""A group with fewer departures is not called best or worst, because one bad day would decide."""


def total(rows: Iterable[Row], column: str) -> int:
    """The sum of a whole-numbered column."""
    return sum(row[column] for row in rows)


def median(counts: Mapping[int, int]) -> float | None:
    """The exact median of a histogram `{value: count}`; None if it is empty."""
    size = sum(counts.values())
    if not size:
        return None
    wanted = ((size - 1) // 2, size // 2)  # the middle one twice, or the middle two
    middle: list[int] = []
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        while len(middle) < len(wanted) and wanted[len(middle)] < seen:
            middle.append(value)
    return sum(middle) / 2


def delay_figures(counts: Mapping[int, int]) -> dict[str, Any]:
    """Mean and median of a histogram of delays in whole minutes. Exact, because the sums are integers."""
    size = sum(counts.values())
    minutes = sum(value * count for value, count in counts.items())
    return {
        "flights": size,
        "mean_minutes": minutes / size if size else None,
        "median_minutes": median(counts),
    }


def histogram(rows: Iterable[Row], kind: str) -> dict[int, int]:
    """The histogram of one kind of delay, from the rows of `delay_histogram`."""
    return {row["minutes"]: row["flights"] for row in rows if row["kind"] == kind}


def shares_by_bucket(counts: Mapping[int, int]) -> dict[str, float]:
    """The share of flights in each bucket of delay, lowest first."""
    found = dict.fromkeys(DELAY.labels, 0)
    for minutes, count in counts.items():
        found[DELAY.label(minutes)] += count
    size = sum(found.values())
    return {label: count / size if size else 0.0 for label, count in found.items()}


def worst(rows: Iterable[Row], count: int = 3) -> list[Row]:
    """The groups with the highest mean departure delay, without tiny groups."""
    big = [row for row in rows if row["departed"] >= FEW]
    return sorted(big, key=lambda row: row["mean_dep_delay"], reverse=True)[:count]


def summarize(carriers: Sequence[Row], hours: Sequence[Row], delays: Sequence[Row]) -> dict[str, Any]:
    """The headline figures as one JSON-ready document."""
    flights, cancelled = total(carriers, "flights"), total(carriers, "cancelled")
    return {
        "flights": flights,
        "cancelled": cancelled,
        "cancelled_share": cancelled / flights,
        "late": total(carriers, "late"),
        "departure_delay": delay_figures(histogram(delays, "departure")),
        "arrival_delay": delay_figures(histogram(delays, "arrival")),
        "matched_share": {
            what: total(carriers, f"with_{what}") / flights for what in ("weather", "plane", "destination")
        },
        "worst_carriers": [_pick(row, "carrier", "name") for row in worst(carriers)],
        "worst_hours": [_pick(row, "hour") for row in worst(hours)],
    }


def _pick(row: Row, *keys: str) -> dict[str, Any]:
    chosen = {key: row[key] for key in keys}
    return {**chosen, "flights": row["flights"], "mean_departure_delay_minutes": row["mean_dep_delay"]}
