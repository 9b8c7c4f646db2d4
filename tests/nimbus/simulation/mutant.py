"""Temporarily builds a bug into the real code; the bugs are listed in `mutants`.

Each is a context manager that replaces one or two functions of the real code. The replaced function must
exist, so that a mutant of a renamed function fails instead of counting as found. Its docstring names the
product that had the bug (DS: DolphinScheduler, AF: Airflow, with the number of the issue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Make = Callable[[], Iterator[None]]

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def mutant(make: Make) -> Make:
    """Add a mutant to the list."""
    MUTANTS[make.__name__] = contextmanager(make)
    return make


@contextmanager
def replaced(owner: Any, **others: Any) -> Iterator[None]:
    """Temporarily replace functions."""
    before = [(found := _definer(owner, name), name, vars(found)[name]) for name in others]
    for found, name, _ in before:
        setattr(found, name, others[name])
    try:
        yield
    finally:
        for found, name, one in before:
            setattr(found, name, one)


def _definer(owner: Any, name: str) -> Any:
    """A module itself; for a class, the base class that defines `name`."""
    return next(one for one in getattr(owner, "__mro__", (owner,)) if name in vars(one))
