"""Writers of `nimbus.tables` are killed and stopped, on real tables: each batch is there once, and that of
the newest run stands."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.nimbus.chaos.table_writers import Writers, writers_of
from tests.nimbus.postgres import HAS_POSTGRES, Database, needs_postgres, running_postgres
from tests.nimbus.table_stores import Batch, DeltaStore, Store, end_threads_of_pyiceberg, store_at
from tests.nimbus.worker_bench import eventually
from tests.thorough import thorough

pytestmark = pytest.mark.chaos
DAYS = [f"2026-01-0{number}" for number in range(1, 9)]
KINDS = ["sqlite", "delta", "iceberg", pytest.param("postgres", marks=needs_postgres)]
ENDS = ("written", "refused", "failed")
"""What a writer says last."""
_log = logging.getLogger(__name__)


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[Database | None]:
    """Started before the first test, so that its processes are not that test's leaks."""
    with running_postgres() if HAS_POSTGRES else nullcontext() as found:
        yield found


class Stage:
    """A table, the writers to it, and what it must contain."""

    def __init__(self, store: Store, writers: Writers, database: Database | None, seed: int) -> None:
        self.store, self.writers, self.random = store, writers, random.Random(seed)
        self._database = database
        self.locks = not isinstance(store, DeltaStore)  # the catalog of Iceberg is a database, too
        self.stands: dict[str, Batch] = {}
        self.counts: Counter[str] = Counter()
        self.run = 0
        self.whole_s = self.commit_s = 0.0
        """How long the last write took that ran to its end, and its commit."""
        for _ in range(3):
            batch = self.next_batch()
            assert self.write(batch) == "written"
            self.stands[batch.day] = batch

    def next_batch(self) -> Batch:
        """The first attempt of a new run, which does an old or a new day."""
        self.run += 1
        return Batch(self.random.choice(DAYS), self.run)

    def write(self, batch: Batch) -> str:
        """Let a writer run to its end; returns what it says."""
        began = time.monotonic()
        pid = self.writers.start(batch)
        if (said := self.writers.wait(pid, "near", *ENDS)) != "near":
            return said
        near = time.monotonic()
        said = self.writers.wait(pid, *ENDS)
        self.whole_s, self.commit_s = time.monotonic() - began, time.monotonic() - near
        return said

    def pause(self, longest_s: float) -> None:
        """A kill at a random time is the point; nothing is awaited."""
        time.sleep(self.random.uniform(0, longest_s))

    def check(self, *possible: Batch) -> Batch | None:
        """The rows of a day are all those of one batch: the one that stands, or a possible one."""
        day = possible[0].day
        if self._database is not None:  # it commits, or rolls back, although the client is gone
            query = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            database = self._database
            eventually(lambda: database.ask(query) == "0", "the end of all connections")
        rows, before = self.store.rows(day), self.stands.get(day)
        for batch in possible:
            if rows == batch.rows():
                self.stands[day] = batch
                return batch
        assert rows == ([] if before is None else before.rows())
        return before

    def killed(self, batch: Batch, near: bool) -> bool:
        """Start a writer and kill it, which lives on after its commit. True: the batch is there."""
        longest_s = 1.5 * (self.commit_s if near else self.whole_s)
        pid = self.writers.start(batch, linger_s=60)
        if near:
            self.writers.wait(pid, "near")
        self.pause(longest_s)
        self.writers.kill(pid)
        is_there = self.check(batch) == batch
        self.counts["killed near the commit" if near else "killed at random"] += 1
        self.counts["kills after the commit" if is_there else "kills before the commit"] += 1
        return is_there

    def finish(self, batch: Batch) -> None:
        """The next attempt of a killed one runs to its end: it writes, unless a newer run stands."""
        stands = self.stands.get(batch.day)
        expected = "refused" if stands is not None and stands.run > batch.run else "written"
        assert self.write(batch) == expected
        self.counts[f"repeats {expected}"] += 1
        assert self.check(batch) == (batch if expected == "written" else stands)


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path, database: Database | None) -> Iterator[Stage]:
    address, of_store = str(tmp_path), None
    if request.param == "postgres":
        assert database is not None
        address, of_store = database.address, database
        database.ask("DROP TABLE IF EXISTS orders, nimbus_marks")
    store = store_at(request.param, address)
    pytest.importorskip(store.library)
    with writers_of(request.param, address, tmp_path) as writers:
        store.create()
        made = Stage(store, writers, of_store, seed=7)
        yield made
    end_threads_of_pyiceberg()
    counts = ", ".join(f"{number} {what}" for what, number in sorted(made.counts.items()))
    _log.info("%s: %s", request.param, counts)


def kill(stage: Stage, kills: int) -> None:
    """Kill writers, each of a run of its own; another attempt repeats it, at once or after later runs."""
    late: list[Batch] = []
    for number in range(kills):
        batch = stage.next_batch()
        stage.killed(batch, near=bool(number % 2))
        again = batch._replace(attempt=2)
        if stage.random.random() < 0.3:
            late.append(again)
        else:
            stage.finish(again)
    stage.random.shuffle(late)
    for batch in late:
        stage.finish(batch)
    for batch in list(stage.stands.values()):
        assert stage.check(batch) == batch


def stop(stage: Stage, pairs: int) -> None:
    """Stop a writer, let a newer attempt or run write the same day, and let the first one go on."""
    for number in range(pairs):
        older = stage.next_batch()
        newer = older._replace(attempt=2) if number % 2 else stage.next_batch()._replace(day=older.day)
        zombie = stage.writers.start(older, linger_s=60)
        if number % 3 == 2:
            stage.writers.wait(zombie, "near")
            stage.pause(stage.commit_s)
        else:
            stage.pause(stage.whole_s)
        os.kill(zombie, signal.SIGSTOP)
        pid = stage.writers.start(newer)
        if not stage.locks:
            assert stage.writers.wait(pid, *ENDS) == "written"
        else:
            stage.pause(4 * stage.whole_s)  # the newer one ends, or waits for the lock of the older one
        os.kill(zombie, signal.SIGCONT)
        ended = stage.writers.wait(zombie, *ENDS)
        stage.counts[f"zombies {ended}"] += 1
        assert ended in ("written", "refused")
        if stage.locks:
            assert stage.writers.wait(pid, *ENDS) == "written"
        stage.writers.kill(zombie)
        assert stage.check(newer) == newer


def test_killed_and_stopped_writers_leave_each_batch_once(stage: Stage) -> None:
    kill(stage, 4)
    stop(stage, 2)


@thorough
@pytest.mark.timeout(1800)
def test_batches_of_100_killed_writers_are_there_once(stage: Stage) -> None:
    kill(stage, 100)

    assert stage.counts["kills before the commit"]
    assert stage.counts["kills after the commit"]


@thorough
@pytest.mark.timeout(1800)
def test_20_zombies_never_replace_what_a_newer_attempt_or_run_has_written(stage: Stage) -> None:
    stop(stage, 20)

    assert stage.counts["zombies refused"]
