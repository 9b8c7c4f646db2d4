"""Temporarily builds a fault into the real code; the faults are listed in `mutants`.

Each is a context manager that replaces a function or two of the real code. What is replaced must be there: a
mutant of something that was renamed fails, and does not pass for found. Its docstring names whose fault it
was (DS: DolphinScheduler, AF: Airflow, with the number of the issue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Make = Callable[[], Iterator[None]]

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def mutant(make: Make) -> Make:
    """Add one to the list."""
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
    """A module itself; of a class, the one among its bases that defines `name`."""
    return next(one for one in getattr(owner, "__mro__", (owner,)) if name in vars(one))
