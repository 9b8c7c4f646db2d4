"""An import and a removal of a cluster whose store fails at each of their writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store import moving, tree
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.moving import make_cluster, read_state
from nimbus.adapters.store.tree import DESTROY, ClusterTree
from nimbus.ports import StoreUnavailableError
from tests.nimbus.integration.test_cluster_move import fill

LONG = timedelta(seconds=60)


def test_import_and_removal_that_stop_at_any_write_are_ended_by_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each write the store becomes unavailable, before or after the write is executed."""
    monkeypatch.setattr(moving, "NODES_TOGETHER", 16)
    monkeypatch.setattr(tree, "TOGETHER", 16)
    with session_of(tmp_path / "old.db") as old, session_of(tmp_path / "new.db") as new:
        fill(old, "/nimbus")
        state, calls = read_state(old, "/nimbus"), calls_on(new)
        calls.ensure("/others/node")

        def make() -> None:
            make_cluster(new, "/nimbus", state)

        def destroy() -> None:
            doomed = ClusterTree(new, "/nimbus")
            doomed.begin(DESTROY)
            doomed.remove()
            doomed.remove_root()

        for step in count():
            made = stopped_at(step, make)
            assert read_whole(new) in (None, state), f"step {step} leaves a half that looks whole"
            if made:
                break
            make()
            assert read_whole(new) == state
            if not stopped_at(step, destroy):
                assert read_whole(new) in (None, state)
                destroy()
            assert not calls.exists("/nimbus")
        assert step > 10
        assert calls.exists("/others/node")


def stopped_at(step: int, work: Callable[[], None]) -> bool:
    """Do something while the store fails at a write: at even steps before the write, at odd ones after it.

    Returns:
        Whether it had finished before the store failed.
    """
    writing, writes = SqliteSession.writing, [0]

    @contextmanager
    def failing(session: SqliteSession) -> Iterator[Any]:
        writes[0] += 1
        if writes[0] - 1 > step // 2 or (writes[0] - 1 == step // 2 and step % 2 == 0):
            raise StoreUnavailableError("gone")
        with writing(session) as nodes:
            yield nodes
        if writes[0] - 1 == step // 2:
            raise StoreUnavailableError("gone after it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteSession, "writing", failing)
        try:
            work()
        except StoreUnavailableError:
            return False
    return True


def read_whole(session: SqliteSession) -> moving.ClusterState | None:
    """The state that a daemon reads; None: it does not start, or there is none."""
    found = ClusterTree(session, "/nimbus")
    if not found.exists() or found.unfinished() is not None or not found.counts():
        return None
    return read_state(session, "/nimbus")


@contextmanager
def session_of(file: Path) -> Iterator[SqliteSession]:
    session = SqliteSession(file)
    session.start()
    try:
        yield session
    finally:
        session.close(LONG)
