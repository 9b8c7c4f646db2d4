"""Jobs of other threads, with their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nimbus.domain.drafts import Draft
from nimbus.domain.run import Run
from nimbus.engine.decision import Refusal

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building a draft."""

    draft: Draft
    result: Run | Refusal | None
    """None: it could not be built yet. It is tried again, with the same fire time."""


class Jobs(Generic[K, T]):
    """Jobs of one kind, by what they are for, and the results that are not used up."""

    def __init__(self) -> None:
        self.under_way: set[K] = set()
        self.results: dict[K, T] = {}

    def finish(self, key: K, result: T | None) -> bool:
        """Record the end of a job; None: without a result. False: nothing waits for it any more."""
        if key not in self.under_way:
            return False
        self.under_way.discard(key)
        if result is not None:
            self.results[key] = result
        return True

    def forget(self, key: K) -> None:
        """Remove a job and its result."""
        self.under_way.discard(key)
        self.results.pop(key, None)

    def keep_from(self, before: Jobs[K, T]) -> None:
        """Copy the jobs of another state."""
        self.under_way, self.results = set(before.under_way), dict(before.results)

    def keep_only(self, is_kept: Callable[[K], bool]) -> None:
        """Drop all others."""
        self.under_way = set(filter(is_kept, self.under_way))
        self.results = {key: kept for key, kept in self.results.items() if is_kept(key)}
