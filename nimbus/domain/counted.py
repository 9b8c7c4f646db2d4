"""A count with its noun. Pure."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """For example `1 file` and `2 files`. `noun`: a singular whose plural adds an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
