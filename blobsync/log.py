"""The logger of each module, which imports structlog when the first line is logged.

structlog imports its console renderer and rich, which takes longer than importing all of this package. A
command that logs nothing should not pay for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_below_error = frozenset({"debug", "info", "warning"})
_dropped: set[str] = set()
_before_first: list[Callable[[], None]] = []


def log_errors_alone(configure: Callable[[], None]) -> None:
    """Drop every line below an error, and call `configure` once, just before the first that is left."""
    _dropped.update(_below_error)
    _before_first.append(configure)


def log_all() -> None:
    """Undo `log_errors_alone`."""
    _dropped.clear()
    _before_first.clear()


def _drop(*_args: object, **_values: object) -> None:
    """A line that is not logged."""


class LazyLog:
    """`structlog.get_logger(name)`, called at the first line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if method in _dropped:
            return _drop
        import structlog

        while _before_first:
            _before_first.pop()()
        return getattr(structlog.get_logger(self._name), method)
