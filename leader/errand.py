"""A call of foreign code, which may take as long as it likes: the guard's, the electable's."""

from __future__ import annotations

from collections.abc import Callable

Afterwards = Callable[[], None]
"""What is done with the outcome: it posts, no more."""

Errand = Callable[[], Afterwards | None]
"""Calls, and says what is to be done afterwards. Must not raise."""
