"""Formats figures with their goals, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmark.leader.table import aligned

Found = Mapping[str, Sequence["Row"]]
"""The rows of each revision, by its label."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure.

    Args:
        measure: The measure that it belongs to.
        words: The name of the figure; the same for all compared revisions.
        unit: Unit of `value` and `goal`.
        value: None: it could not be measured, and `note` says why.
        goal: Upper limit; None: the figure has no goal.
        least: Whether the goal is a lower limit instead.
        note: Additional text.
    """

    measure: str
    words: str
    unit: str
    value: float | None
    goal: float | None = None
    least: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        if self.value is None:
            return "MISSED"
        return "met" if (self.value >= self.goal if self.least else self.value <= self.goal) else "MISSED"


def table(measure: str, found: Found) -> str:
    """The rows of one measure, with the ratio of before to after if both are measured."""
    after = [row for row in found.get("after", ()) if row.measure == measure]
    before = {row.words: row for row in found.get("before", ()) if row.measure == measure}
    shown = [[measure, "goal", "measured", "", *(("before", "before / this") if before else ()), "notes"]]
    for row in after:
        old = before.get(row.words)
        compared = [_words(old), _ratio(old, row)] if before else []
        shown.append([row.words, _goal(row), _words(row), row.verdict, *compared, row.note])
    return aligned(shown)


def as_json(found: Found) -> dict[str, Any]:
    """All rows, with verdicts."""
    return {label: [{**asdict(row), "verdict": row.verdict} for row in rows] for label, rows in found.items()}


def _goal(row: Row) -> str:
    if row.goal is None:
        return ""
    return f"{'>=' if row.least else '<='} {row.goal:g} {row.unit}"


def _words(row: Row | None) -> str:
    if row is None or row.value is None:
        return "-"
    return f"{row.value:.3g} {row.unit}" if abs(row.value) < 1000 else f"{row.value:,.0f} {row.unit}"


def _ratio(old: Row | None, row: Row) -> str:
    if old is None or old.value is None or not row.value:
        return ""
    return f"{old.value / row.value:.3g}"
