"""Values by the dozen: what happened, what to do about it, what to ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """A dataclass that is never changed: the type checker sees to that.

    One that is frozen takes twice as long to make, since each of its fields is set through a function. A
    hand-over makes some fifty, one after the other, while nobody leads.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
