"""Steps to their end: one request after the other, each answered before the next is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from leader.protocol.requests import Request, Steps

T = TypeVar("T")


def drive(steps: Steps[T], answer: Callable[[Request], Any]) -> T:
    """Run `steps` on the answers that `answer` gives and the errors it raises. Raises what they raise."""
    given: Any = None
    error: Exception | None = None
    while True:
        try:
            request = steps.send(given) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        given, error = None, None
        try:
            given = answer(request)
        except Exception as exc:  # noqa: BLE001 - foreseen or not: who asked decides what becomes of it
            error = exc
