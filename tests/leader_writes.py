"""Writes of a leader, as tests do them: one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.domain.writes import Write
from nimbus.ports import LeaderStore


def commit(store: LeaderStore, *batches: Sequence[Write]) -> None:
    """Do what some decisions write in one transaction."""
    transaction = store.begin()
    for writes in batches:
        assert transaction.add(writes)
    transaction.commit()
