"""One suite for all helpers of `nimbus.tables`, on real tables: a part of a table has the batch of one
attempt, and never that of an older one after that of a newer one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from itertools import permutations
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import patch

import pytest

from nimbus import tables
from nimbus.domain.runs.run_number import WriteVersionError
from nimbus.tables import NewerWriteError
from nimbus.task import NotInATaskError
from tests.nimbus.postgres import HAS_POSTGRES, Database, needs_postgres, running_postgres
from tests.nimbus.table_stores import (
    Batch,
    DeltaStore,
    IcebergStore,
    Opening,
    SqlStore,
    Store,
    end_threads_of_pyiceberg,
    postgres_store,
    sqlite_store,
    task_of,
    write,
)

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
pytestmark = [
    pytest.mark.usefixtures("_ends_threads_of_pyiceberg"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]
KINDS = ["sqlite", "delta", "iceberg", pytest.param("postgres", marks=needs_postgres)]


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[Database | None]:
    """Started before the first test, so that its processes are not that test's leaks."""
    with running_postgres() if HAS_POSTGRES else nullcontext() as found:
        yield found


@pytest.fixture
def _ends_threads_of_pyiceberg() -> Iterator[None]:
    yield
    end_threads_of_pyiceberg()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, database: Database | None) -> Store:
    """An empty table, of each kind."""
    made: Store
    match request.param:
        case "postgres":
            assert database is not None
            database.ask("DROP TABLE IF EXISTS orders, nimbus_marks")
            made = postgres_store(database.address)
        case "delta":
            made = DeltaStore(str(tmp_path / "delta"))
        case "iceberg":
            made = IcebergStore(str(tmp_path))
        case _:
            made = sqlite_store(tmp_path)
    pytest.importorskip(made.library)
    made.create()
    return made


@pytest.fixture
def writes(store: Store, tmp_path: Path) -> Callable[[Batch], None]:
    return partial(write, store, folder=tmp_path)


def test_rerun_of_an_old_interval_replaces_whatever_ran_before(
    store: Store, writes: Callable[[Batch], None]
) -> None:
    for first, order in enumerate(permutations(DAYS)):
        batches = [Batch(day, 3 * first + place) for place, day in enumerate(order, 1)]
        for batch in batches:
            writes(batch)

        assert [store.rows(batch.day) for batch in batches] == [batch.rows() for batch in batches]


def test_repeated_attempt_replaces_what_the_one_before_has_committed(
    store: Store, writes: Callable[[Batch], None]
) -> None:
    for attempt in (1, 2, 2):  # the same attempt may write again
        writes(Batch(DAYS[0], 1, attempt))

    assert store.rows(DAYS[0]) == Batch(DAYS[0], 1, 2).rows()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (Batch(DAYS[0], 1, 1), Batch(DAYS[0], 1, 2)),
        (Batch(DAYS[0], 1, 200), Batch(DAYS[0], 2, 1)),  # its fence token is larger
    ],
    ids=["attempt", "run"],
)
def test_older_write_is_refused_after_a_newer_one(
    store: Store, writes: Callable[[Batch], None], older: Batch, newer: Batch
) -> None:
    writes(newer)
    for _ in range(2):
        with pytest.raises(NewerWriteError, match="start a new run"):
            writes(older)

    assert store.rows(DAYS[0]) == newer.rows()


def test_older_run_of_another_part_is_not_refused(store: Store, writes: Callable[[Batch], None]) -> None:
    batches = [Batch(DAYS[0], 2), Batch(DAYS[1], 1)]
    for batch in batches:
        writes(batch)

    assert [store.rows(batch.day) for batch in batches] == [batch.rows() for batch in batches]


def test_write_that_fails_before_its_commit_changes_nothing(
    store: Store, writes: Callable[[Batch], None], tmp_path: Path
) -> None:
    first = Batch(DAYS[0], 1)
    writes(first)

    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(store, Batch(DAYS[0], 2), tmp_path, fails)
    assert store.rows(DAYS[0]) == first.rows()
    writes(Batch(DAYS[0], 1, 2))  # its mark is not there, too
    assert store.rows(DAYS[0]) == Batch(DAYS[0], 1, 2).rows()


def test_first_writes_at_once_leave_the_batch_once(store: Store, tmp_path: Path) -> None:
    batch = Batch(DAYS[0], 1)
    barrier = Barrier(4)

    def replace() -> None:
        barrier.wait(60)
        store.replace(batch)

    with task_of(batch, tmp_path), ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(replace) for _ in range(4)]:
            done.result(60)

    assert store.rows(DAYS[0]) == batch.rows()


def test_write_that_a_newer_one_overtakes_is_refused(
    store: Store, writes: Callable[[Batch], None], tmp_path: Path
) -> None:
    """The newer one commits after the older one has read the mark."""
    if isinstance(store, SqlStore):
        pytest.skip("its mark is locked")
    writes(Batch(DAYS[0], 1))
    overtakes = iter([Batch(DAYS[0], 3)])

    def near_commit() -> None:
        for newer in overtakes:
            with task_of(newer, tmp_path):
                store.replace(newer)

    with pytest.raises(NewerWriteError):
        write(store, Batch(DAYS[0], 2), tmp_path, near_commit)
    assert store.rows(DAYS[0]) == Batch(DAYS[0], 3).rows()


def test_write_is_tried_again_when_another_part_is_committed_first(
    store: Store, writes: Callable[[Batch], None], tmp_path: Path
) -> None:
    if isinstance(store, SqlStore):
        pytest.skip("a transaction of its own")
    batches = [Batch(day, 1) for day in DAYS]
    others = iter(batches[1:])

    def near_commit() -> None:
        for other in others:
            with task_of(other, tmp_path):
                store.replace(other)

    write(store, batches[0], tmp_path, near_commit)

    assert [store.rows(batch.day) for batch in batches] == [batch.rows() for batch in batches]


def test_write_needs_a_task_whose_attempt_has_a_number(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotInATaskError):
        store.replace(Batch(DAYS[0], 1))
    with pytest.raises(WriteVersionError):
        write(store, Batch(DAYS[0], 1, 257), tmp_path)

    assert store.rows(DAYS[0]) == []


def test_sql_replaces_a_whole_table(store: Store, writes: Callable[[Batch], None], tmp_path: Path) -> None:
    connect = getattr(store, "connect", None)
    if connect is None:
        pytest.skip("not a SQL database")
    writes(Batch(DAYS[0], 1))
    writes(Batch(DAYS[1], 1))

    with (
        task_of(Batch("", 1), tmp_path),
        closing(connect()) as connection,
        tables.sql.replace(connection, "orders") as cursor,
    ):
        cursor.execute("INSERT INTO orders VALUES ('2026-01-03', 1, 1, 0)")

    assert [len(store.rows(day)) for day in DAYS] == [0, 0, 1]


@pytest.mark.parametrize("library", ["sqlite3", pytest.param("psycopg", marks=needs_postgres)])
def test_sql_refuses_a_connection_that_commits_each_statement(
    library: str, database: Database | None, tmp_path: Path
) -> None:
    if library == "psycopg":
        assert database is not None
        connection = Opening(library, database.address)()
        connection.autocommit = True
    else:
        connection = sqlite3.connect(tmp_path / "tables.sqlite", isolation_level=None)

    with (
        task_of(Batch("", 1), tmp_path),
        closing(connection),
        pytest.raises(ValueError, match="autocommit"),
        tables.sql.replace(connection, "orders"),
    ):
        pass


def test_delta_gives_spark_the_same_mark(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    store, where = DeltaStore(str(tmp_path / "delta")), f"day = '{DAYS[0]}'"
    write(store, Batch(DAYS[0], 2, 3), tmp_path)
    with task_of(Batch(DAYS[0], 2, 3), tmp_path):
        options, whole = tables.delta.spark_options(where), tables.delta.spark_options()

    assert DeltaTable(store.uri).transaction_version(options["txnAppId"]) == int(options["txnVersion"])
    assert options["replaceWhere"] == where
    assert whole == {**whole, "txnAppId": "c/p.t/", "txnVersion": options["txnVersion"]}
    assert "replaceWhere" not in whole


def test_delta_refuses_rows_of_another_part(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    from deltalake.exceptions import DeltaError

    store = DeltaStore(str(tmp_path / "delta"))
    with task_of(Batch(DAYS[0], 1), tmp_path), pytest.raises(DeltaError):
        tables.delta.replace(store.uri, {"day": [DAYS[0]]}, where=f"day = '{DAYS[1]}'")
    assert store.rows(DAYS[0]) == store.rows(DAYS[1]) == []


def test_iceberg_commits_once_between_two_looks_at_the_mark(tmp_path: Path) -> None:
    """The library itself would repeat a commit after a conflict, without such a look."""
    pytest.importorskip("pyiceberg.catalog.sql")
    from pyiceberg.table import Table

    store, seen = IcebergStore(str(tmp_path)), list[str]()
    store.create()
    begins = Table.transaction
    others = iter([Batch(DAYS[1], 1)])

    def transaction(table: Any) -> Any:
        seen.append("look")
        return begins(table)

    def near_commit() -> None:
        seen.append("commit")
        for other in others:
            with task_of(other, tmp_path):
                store.replace(other)
            seen.append("other")

    with patch.object(Table, "transaction", transaction):
        write(store, Batch(DAYS[0], 1), tmp_path, near_commit)

    assert seen == ["look", "commit", "look", "commit", "other", "look", "commit"]


def test_iceberg_keeps_the_marks_with_the_largest_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg.catalog.sql")
    monkeypatch.setattr(tables.iceberg, "MAX_MARKS", 2)
    store = IcebergStore(str(tmp_path))
    store.create()
    for run, day in ((3, DAYS[0]), (2, DAYS[1]), (4, DAYS[2]), (5, DAYS[2])):
        write(store, Batch(day, run), tmp_path)

    kept = store.catalog.load_table("sales.orders").properties
    marks = sorted(key for key in kept if key.startswith("nimbus.mark."))
    assert marks == [f"nimbus.mark.c/p.t/day == '{day}'" for day in (DAYS[0], DAYS[2])]
    assert "commit.retry.num-retries" not in kept  # writers of others are as they were
    with pytest.raises(NewerWriteError):  # although the mark of run 2 is not kept
        write(store, Batch(DAYS[1], 1), tmp_path)
    write(store, Batch(DAYS[1], 6), tmp_path)
    assert [store.rows(day) for day in DAYS[:2]] == [Batch(DAYS[0], 3).rows(), Batch(DAYS[1], 6).rows()]


def test_libraries_are_imported_when_they_are_used() -> None:
    code = "import sys; from nimbus import tables; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"deltalake", "pyarrow", "pyiceberg", "psycopg"} & set(done.stdout.split())
