"""The records of terms, one node each, named by their epochs."""

from __future__ import annotations

from nimbus import records
from nimbus.adapters.store.calls import Calls, readable
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain import writes as w
from nimbus.domain.terms import Term

NEWEST = 2
"""How many a new leader needs: the previous one, and its own if it reads the state again."""
OLD_AT_ONCE = 100


def change(paths: Paths, write: w.CreateTerm | w.PutTerm) -> Operation:
    """The operation for a write."""
    data = records.TERM.encode(write.term)
    return Operation(
        "create" if isinstance(write, w.CreateTerm) else "set", paths.term(write.term.epoch), data
    )


def read_newest(calls: Calls, paths: Paths, most: int = NEWEST) -> tuple[Term, ...]:
    """The newest terms, newest first."""
    return _read(calls, paths, (calls.children(paths.terms) or ())[-most:])[::-1]


def read_old(calls: Calls, paths: Paths, most: int) -> tuple[Term, ...]:
    """Terms beyond the newest `most`, oldest first."""
    return _read(calls, paths, (calls.children(paths.terms) or ())[:-most][:OLD_AT_ONCE])


def _read(calls: Calls, paths: Paths, names: tuple[str, ...]) -> tuple[Term, ...]:
    return tuple(readable(records.TERM, calls.read_all(paths.terms, names), paths.terms))
