"""A call of foreign code, which may take as long as it likes: the guard's, the electable's."""

from __future__ import annotations

from collections.abc import Callable

Afterwards = Callable[[], None]
"""What is done with the outcome: it posts, no more."""

Errand = Callable[[], Afterwards | None]
"""Calls, and says what is to be done afterwards. Must not raise."""


def in_words(raised: BaseException) -> str:
    """What foreign code has raised, whatever that makes of itself."""
    try:
        return f"{type(raised).__name__}: {raised}"
    except BaseException:  # noqa: BLE001 - its words are foreign code too
        return type(raised).__name__
