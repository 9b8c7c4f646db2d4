"""The store in SQLite, shared by real processes: kills, notifications, fences."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from leader import FencedOutError, FencingToken, ForkedError
from nimbus.adapters.sqlite import tree as sqlite_tree
from nimbus.adapters.sqlite.calls import SqliteCalls, begin_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.ports import StoreUnavailableError
from tests.forked import exit_code_of_child
from tests.thorough import thorough

Eventually = Callable[..., None]
LONG = timedelta(seconds=60)

WRITER = """
import sys
from pathlib import Path
from nimbus.adapters.sqlite.calls import SqliteCalls
from nimbus.adapters.sqlite.session import SqliteSession
session = SqliteSession(Path(sys.argv[1]))
session.start()
calls = SqliteCalls(session)
calls.ensure("/written")
calls.create("/alive-" + sys.argv[2], b"", ephemeral=True)
while True:
    def build(transaction):
        transaction.create(made + "/half", b"")
        transaction.create(made + "/other-half", b"")
    made = calls.create("/written/" + sys.argv[2] + "-", b"", sequence=True)
    calls.transact("two", build)
    print(made, flush=True)
"""

WITHOUT_FILES = """
import resource, sys
from pathlib import Path
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.ports import StoreUnavailableError
session = SqliteSession(Path(sys.argv[1]))
session.start()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    session._end_dead_sessions()
except StoreUnavailableError as exc:
    print(exc, flush=True)
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqliteSession]:
    session = SqliteSession(tmp_path / "state.db")
    session.start()
    yield session
    session.close(LONG)


@pytest.fixture
def calls(session: SqliteSession) -> SqliteCalls:
    return SqliteCalls(session)


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=thorough)])
def test_killed_writers_lose_nothing_acknowledged_and_leave_no_half_of_a_transaction(
    session: SqliteSession, calls: SqliteCalls, eventually: Eventually, kills: int
) -> None:
    for kill in range(kills):
        names = [f"{kill}-{number}" for number in range(2)]
        command = [sys.executable, "-c", WRITER, str(session.file)]
        writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in names]
        acknowledged = []
        for writer in writers:
            assert writer.stdout is not None
            acknowledged += [writer.stdout.readline().strip() for _ in range(10)]
        for writer in writers:
            writer.kill()
        for writer in writers:
            acknowledged += [line.strip() for line in (writer.communicate()[0] or "").splitlines(True)[:-1]]

        halves = {path: calls.children(path) for path in acknowledged}
        assert set(halves.values()) == {("half", "other-half")}
        for name in calls.children("/written") or ():
            assert len(calls.children(f"/written/{name}") or ()) in (0, 2)
        eventually(
            lambda names=names: not any(calls.exists(f"/alive-{name}") for name in names),
            what="their ephemeral nodes go",
        )


def test_a_process_without_free_file_descriptors_takes_no_other_process_for_dead(
    session: SqliteSession, calls: SqliteCalls
) -> None:
    calls.create("/alive", b"", ephemeral=True)

    command = [sys.executable, "-c", WITHOUT_FILES, str(session.file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert calls.exists("/alive")
    assert "Too many open files" in done.stdout


def test_a_watch_is_told_of_what_another_process_does(
    session: SqliteSession, calls: SqliteCalls, tmp_path: Path
) -> None:
    calls.ensure("/written")
    told = threading.Event()
    calls.children("/written", told.set)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(session.file), "one"], stdout=subprocess.DEVNULL
    )
    try:
        assert told.wait(60)
    finally:
        writer.kill()
        writer.wait()


def test_a_watch_is_told_once_and_not_of_what_its_reader_has_seen(
    session: SqliteSession, calls: SqliteCalls
) -> None:
    told = []
    calls.create("/a", b"1")
    calls.get("/a", lambda: told.append("a"))
    session.deliver()
    assert told == []

    calls.set("/a", b"2")
    calls.set("/a", b"3")
    session.deliver()
    assert told == ["a"]


def test_a_watch_that_fails_keeps_no_other_from_being_told(
    session: SqliteSession, calls: SqliteCalls, eventually: Eventually
) -> None:
    told = threading.Event()

    def fail() -> None:
        raise RuntimeError("a loop that is closed")

    calls.create("/a", b"1")
    for changed in (fail, told.set):
        calls.get("/a", changed)
    calls.set("/a", b"2")
    assert told.wait(60)

    again = threading.Event()
    calls.get("/a", again.set)
    calls.set("/a", b"3")
    assert again.wait(60), "the thread goes on"


def test_every_watch_is_told_when_changes_were_forgotten_before_they_were_read(
    session: SqliteSession, calls: SqliteCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tree, "CHANGES_KEPT", 2)
    told = threading.Event()
    calls.create("/watched", b"")
    calls.get("/watched", told.set)
    with session.writing() as tree:
        for number in range(5):
            tree.create(f"/{number}", b"")

    session.deliver()
    assert told.is_set()


def test_a_database_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute("PRAGMA user_version = 2")

    with pytest.raises(StoreUnavailableError, match="has layout 2, this release knows 1") as refused:
        SqliteSession(tmp_path / "state.db").start()

    assert refused.value.exit_code == 2, "systemd does not restart it"
    with closing(sqlite3.connect(tmp_path / "state.db", timeout=0)) as database:
        database.execute("BEGIN IMMEDIATE")  # `refused` still keeps the session


def test_stores_that_begin_in_the_same_millisecond_are_different_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The processes of an attempt are found, and killed, by a tag with the cluster's id.
    monkeypatch.setattr(sqlite_tree.time, "time_ns", lambda: 1_700_000_000_000_000_000)
    clusters = []
    for name in ("one.db", "other.db", "one.db"):
        session = SqliteSession(tmp_path / name)
        session.start()
        clusters.append(TreeAttemptBoard(SqliteCalls(session), "/nimbus").cluster())
        session.close(LONG)

    assert clusters[0] == clusters[2] != clusters[1]


def test_a_damaged_database_is_told_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    file.write_bytes(b"no database" * 1000)

    with pytest.raises(StoreUnavailableError, match=r"damaged.*restore.*backup") as refused:
        SqliteSession(file).start()

    assert refused.value.exit_code == 2, "systemd does not restart it"


def test_a_full_disk_is_told_with_what_to_do(session: SqliteSession) -> None:
    assert session._database is not None
    session._database.execute("PRAGMA max_page_count = 1")

    with pytest.raises(StoreUnavailableError, match=r"full.*Free some space"), session.writing() as tree:
        for number in range(1000):
            tree.create(f"/{number}", bytes(4000))


def test_session_says_that_its_database_cannot_be_written_until_it_can(tmp_path: Path) -> None:
    session = SqliteSession(tmp_path / "state.db", timedelta(milliseconds=50))
    session.start()
    assert session.trouble == ""
    with closing(sqlite3.connect(session.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError), session.writing():
            pass
        with session.reading():
            pass
        assert "locked" in session.trouble
        other.execute("ROLLBACK")
    with session.writing():
        pass

    assert session.trouble == ""
    session.close(timedelta(seconds=5))
    assert "closed" in session.trouble


def test_a_forked_child_is_refused_the_session_of_its_parent(session: SqliteSession) -> None:
    def work() -> int:
        with pytest.raises(ForkedError), session.reading():
            pass
        return 0

    assert exit_code_of_child(work) == 0


def test_a_term_fences_those_before_it_and_cannot_begin_again(
    session: SqliteSession, calls: SqliteCalls
) -> None:
    """For example two processes whose elections both count versions from 0."""
    first, second = (FencingToken(path="/epoch", version=1, epoch=epoch) for epoch in (7, 8))
    old = begin_term(session, first)
    new = begin_term(session, second)

    with pytest.raises(FencedOutError):
        calls.fenced("write", old, lambda transaction: transaction.create("/late", b""))
    with pytest.raises(FencedOutError):
        begin_term(session, first)
    calls.fenced("write", new, lambda transaction: transaction.create("/in-time", b""))
    assert calls.children("/") == ("epoch", "in-time")


def test_a_process_that_proc_hides_keeps_its_session_and_others_are_still_ended(
    session: SqliteSession, calls: SqliteCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, gone = 999_999_998, 999_999_999  # above the largest pid of Linux
    with session.writing() as tree:
        kept, ended = tree.begin_session(hidden, "boot 1"), tree.begin_session(gone, "boot 1")
    read_text = Path.read_text

    def read(path: Path, *args: str) -> str:
        if str(path) == f"/proc/{hidden}/stat":
            raise PermissionError(1, "Operation not permitted", str(path))
        return read_text(path, *args)

    monkeypatch.setattr(Path, "read_text", read)
    another = SqliteSession(session.file)
    another.start()
    another.close(timedelta(seconds=5))

    with session.reading() as tree:
        left = {one for one, _, _ in tree.sessions()}
    assert kept in left
    assert ended not in left
