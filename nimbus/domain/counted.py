"""A count with its noun. Pure."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Such as `1 file` and `2 files`. `noun`: in the singular, of those that take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
