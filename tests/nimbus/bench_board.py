"""The shipped attempt board on SQLite, and what a test does to it in the role of the leader.

Runners and executors connect to its file as those of an embedded cluster do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from nimbus.adapters.sqlite.calls import SqliteCalls
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.sqlite.tree import SqliteTree
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.paths import SUBMITTED, Paths
from nimbus.adapters.store.runs import encode_order
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId, WorkerId

ROOT = "/nimbus"
_PATHS = Paths(ROOT)
_CUT = ("ALTER TABLE nodes RENAME TO hidden", "CREATE VIEW nodes AS SELECT the_board_is_cut_off()")
_MEND = ("DROP VIEW nodes", "ALTER TABLE hidden RENAME TO nodes")


class BenchBoard(TreeAttemptBoard):
    """See the module. `cut_off` does not concern the leader."""

    def __init__(self, file: Path) -> None:
        self._session = SqliteSession(file)
        self._session.start()
        super().__init__(SqliteCalls(self._session), ROOT)
        self._is_cut_off = False
        with self._leading() as tree:
            for path in _PATHS.always():
                tree.ensure(path)

    def add_attempt(self, attempt: str) -> None:
        """Create an attempt's slots."""
        with self._leading() as tree:
            tree.create(_place(attempt))

    def remove_attempt(self, attempt: str) -> None:
        """Archive an attempt: its slots do not exist any more."""
        with self._leading() as tree:
            for name in tree.children(_place(attempt)) or ():
                tree.delete(f"{_place(attempt)}/{name}")
            tree.delete(_place(attempt))

    def assign(self, worker: str, order: Assignment) -> None:
        """Give an order, or replace it."""
        path = _PATHS.order(WorkerId(worker), AttemptId.parse(order.attempt))
        with self._leading() as tree:
            tree.ensure(path)
            tree.set_data(path, encode_order(order))

    def unassign(self, worker: str, attempt: str) -> None:
        """Withdraw an order."""
        with self._leading() as tree:
            tree.delete(_PATHS.order(WorkerId(worker), AttemptId.parse(attempt)))

    def request_stop(self, attempt: str) -> None:
        """Request that an attempt is stopped."""
        with self._leading() as tree:
            tree.ensure(_PATHS.stop(AttemptId.parse(attempt)))

    def let_be_submitted_earlier(self, attempt: str, by: timedelta) -> None:
        """Move the time of an attempt's submission to a cluster."""
        with self._leading() as tree:
            tree._do(
                "UPDATE nodes SET ctime_ms = ctime_ms - ? WHERE parent = ? AND path LIKE ?",
                (by // timedelta(milliseconds=1), _place(attempt), f"%/{SUBMITTED}%"),
            )

    def cut_off(self, *, down: bool) -> None:
        """Make the store unusable for every process, or usable again: SQLite refuses each read and write."""
        with self._leading():
            self._is_cut_off = down

    @contextmanager
    def _leading(self) -> Iterator[SqliteTree]:
        """A transaction that succeeds also while the store is cut off."""
        with self._session.writing() as tree:
            if self._is_cut_off:
                _alter(tree, _MEND)
            yield tree
            if self._is_cut_off:
                _alter(tree, _CUT)

    def close(self) -> None:
        """End the session."""
        self._session.close(timedelta(seconds=10))


def _place(attempt: str) -> str:
    return _PATHS.attempt(AttemptId.parse(attempt))


def _alter(tree: SqliteTree, statements: tuple[str, ...]) -> None:
    for statement in statements:
        tree._do(statement)
