"""Writes of a leader, for tests: one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.adapters.store.transaction import TreeTransaction
from nimbus.domain.writes import Write
from nimbus.ports import LeaderStore


def commit(store: LeaderStore, *batches: Sequence[Write]) -> None:
    """Write some decisions in one transaction."""
    transaction = store.begin()
    for writes in batches:
        assert transaction.add(writes)
    transaction.commit()


class RecordedTransaction(TreeTransaction):
    """A transaction of the shipped store that remembers its writes."""

    writes: tuple[Write, ...] = ()

    def add(self, writes: Sequence[Write]) -> bool:
        """Add writes."""
        fits = super().add(writes)
        if fits:
            self.writes += tuple(writes)
        return fits
