"""A tree in SQLite has the answers, refusals and notifications of a ZooKeeper, for any requests."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo import exceptions as kazoo_errors

from leader.local.zookeeper import MemoryConnection, MemoryZooKeeper
from leader.local.zookeeper import Tree as MemoryTree
from leader.protocol import requests as rq
from nimbus.adapters.sqlite.session import WatchedPart, concerned, prepare
from nimbus.adapters.sqlite.tree import SqliteTree

SESSION = 7
PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/deep")
WORDS: dict[type[Exception], type[Exception]] = {
    rq.NodeMissingError: kazoo_errors.NoNodeError,
    rq.NodeExistsError: kazoo_errors.NodeExistsError,
    rq.NotEmptyError: kazoo_errors.NotEmptyError,
    rq.NotPermittedError: kazoo_errors.NoChildrenForEphemeralsError,
    rq.VersionMismatchError: kazoo_errors.BadVersionError,
}

paths, data = st.sampled_from(PATHS), st.binary(max_size=3)
writes = st.one_of(
    st.builds(rq.Create, path=paths, data=data, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(rq.SetData, path=paths, data=data),
    st.builds(rq.Delete, path=paths),
)
checks = st.builds(rq.Check, path=paths, version=st.integers(-1, 2))
transactions = st.lists(st.one_of(writes, checks), min_size=1, max_size=4).map(
    lambda some: rq.Transaction(tuple(some))
)
steps = st.lists(st.one_of(writes, st.builds(rq.EnsurePath, path=paths), transactions), max_size=25)


def do(tree: SqliteTree, request: object) -> object:
    match request:
        case rq.Create(path, content, ephemeral, sequential):
            return tree.create(path, content, owner=SESSION if ephemeral else 0, sequence=sequential)
        case rq.SetData(path, content):
            return tree.set_data(path, content)
        case rq.Delete(path):
            return tree.delete(path)
        case rq.EnsurePath(path):
            return tree.ensure(path)
        case rq.Check(path, version):
            return tree.check(path, version)
        case rq.Transaction(operations):
            return [do(tree, one) for one in operations]
    raise AssertionError(request)


def refusal(act: Callable[[], object]) -> type[Exception] | None:
    """The refusal, as kazoo's error; None: it was executed."""
    try:
        act()
    except rq.TransactionFailedError as exc:
        return WORDS[type(exc.cause)]
    except rq.RequestRefusedError as exc:
        return WORDS[type(exc)]
    except kazoo_errors.KazooException as exc:
        return type(exc)
    return None


def arm(connection: MemoryConnection, known: list[str]) -> set[tuple[WatchedPart, str]]:
    armed = set()
    for path in known:
        node = connection.answer(rq.Exists(path, watch=True))
        armed.add((WatchedPart.NODE, path))
        if node is not None:
            connection.answer(rq.GetChildren(path, watch=True))
            armed.add((WatchedPart.CHILDREN, path))
    return armed


Nodes = dict[str, tuple[bytes | None, int, bool]]
"""Data, version, and whether it is ephemeral, by path."""


def nodes_of(tree: SqliteTree, path: str = "/") -> Nodes:
    stat = tree.stat(path)
    assert stat is not None
    found: Nodes = {path: (tree.get(path), stat.version, bool(stat.owner))}
    for name in tree.children(path) or ():
        found |= nodes_of(tree, f"{path.rstrip('/')}/{name}")
    return found


def nodes_in_memory(tree: MemoryTree, path: str = "/") -> Nodes:
    node = tree.get(path)
    assert node is not None
    found: Nodes = {path: (node.data, node.version, bool(node.owner))}
    for name in tree.children(path):
        found |= nodes_in_memory(tree, f"{path.rstrip('/')}/{name}")
    return found


@given(asked=steps)
def test_a_tree_in_sqlite_does_refuses_and_tells_what_a_zookeeper_does(asked: list[rq.Write]) -> None:
    told: set[str] = set()
    zookeeper = MemoryZooKeeper(lambda: timedelta(0))
    connection = zookeeper.connect(lambda path, _gone: told.add(path))
    database = sqlite3.connect(":memory:", isolation_level=None)
    prepare(database)
    tree = SqliteTree(database)
    for request in asked:
        armed = arm(connection, ["/", *PATHS])
        told.clear()
        before = tree.last()
        database.execute("BEGIN")
        refused = refusal(lambda request=request: do(tree, request))  # type: ignore[misc]
        database.execute("COMMIT" if refused is None else "ROLLBACK")

        assert refused == refusal(lambda request=request: connection.answer(request))  # type: ignore[misc]
        due = {one for change in tree.changes(before) or () for one in concerned(change)} & armed
        assert told <= {path for _, path in due}
        if not isinstance(request, rq.Transaction):
            assert told == {path for _, path in due}
    tree.end_sessions([SESSION])
    connection.close()
    assert nodes_of(tree) == nodes_in_memory(zookeeper.tree)
    database.close()


@pytest.mark.parametrize("kept", [1, 3])
def test_changes_are_known_for_as_long_as_they_are_kept(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nimbus.adapters.sqlite.tree.CHANGES_KEPT", kept)
    database = sqlite3.connect(":memory:", isolation_level=None)
    prepare(database)
    tree = SqliteTree(database)
    for number in range(5):
        tree.create(f"/{number}")
        tree.forget_old_changes()

    last = tree.last()
    assert [change.zxid for change in tree.changes(last - kept) or ()] == list(
        range(last - kept + 1, last + 1)
    )
    assert tree.changes(last - kept - 1) is None
    database.close()
