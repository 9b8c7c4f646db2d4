"""Formats numbers of bytes for people."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
"""Each unit is 1024 times the one before."""


def format_size(count: int) -> str:
    """A size such as `9 B` or `1.5 MiB`."""
    value = float(count)
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(count)
