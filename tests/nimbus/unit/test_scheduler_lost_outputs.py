"""Which outputs in a bucket are deleted and when, and which are never deleted."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from blobsync.testing.memory import MemoryObjectStore
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.ports import StoreUnavailableError
from nimbus.records import UnreadableRecordError
from nimbus.scheduler.output_deletion import LostOutputs, is_lost

T0 = datetime(2026, 3, 1, tzinfo=UTC)
GRACE = timedelta(hours=24)
WINNER, LOSER, OPEN = (f"sums/run1/load/{number}-{number:016x}" for number in (2, 1, 3))
TWIN = f"sums/run1/load/2-{9:016x}"
"""An output with the winner's attempt number, by another runner."""


class HeldClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> datetime:
        return T0

    def elapsed_s(self) -> float:
        return self.at_s


def manifest_of(prefix: str) -> str:
    return f"{prefix}/manifest-{'0' * 64}.json"


def an_attempt(number: int, outcome: Outcome | None, output: str | None = None) -> Attempt:
    return Attempt(
        number=number,
        worker=WorkerId("w1"),
        opened_at=T0,
        opened_by_epoch=1,
        outcome=outcome,
        output=output,
    )


def a_run(*attempts: Attempt) -> Run:
    spec = TaskSpec(name=TaskName("load"), kind=TaskKind.PYTHON, script="l.py")
    return Run(
        id=RunId("run1"),
        pipeline=PipelineName("sums"),
        release=ReleaseDigest("0" * 64),
        cause=RunCause.MANUAL,
        created_at=T0,
        logical_date=T0,
        parameters={},
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks([TaskRun(spec=spec, attempts=attempts)]),
    )


LOST = an_attempt(1, Outcome.LOST)
WON = an_attempt(2, Outcome.SUCCEEDED, manifest_of(WINNER))


class Stage:
    """A bucket, runs, and a collection."""

    def __init__(self) -> None:
        self.store, self.clock = MemoryObjectStore(), HeldClock()
        self.runs: dict[str, Run] = {"run1": a_run(LOST, WON)}
        self.leads, self.down = True, False
        self.deleted: list[tuple[int, int]] = []
        self.lost = LostOutputs(
            store=self.store,
            runs=self.read,
            leads=lambda: self.leads,
            clock=self.clock,
            grace=GRACE,
            deleted=lambda count, size_bytes: self.deleted.append((count, size_bytes)),
        )
        for prefix in (WINNER, LOSER, TWIN):
            self.put(prefix)

    def put(self, prefix: str) -> None:
        self.store.write(f"{prefix}/data/part-0", b"rows")
        self.store.write(manifest_of(prefix), b"{}")

    def read(self, run: RunId) -> Run | None:
        if self.down:
            raise StoreUnavailableError("not now")
        return self.runs.get(run)

    def collect(self, after: timedelta = timedelta(0)) -> set[str]:
        """Collect. Returns the remaining prefixes."""
        self.clock.at_s += after.total_seconds()
        self.lost.collect(threading.Event())
        return {info.key.rpartition("/")[0].removesuffix("/data") for info in self.store.list("")}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_outputs_that_no_end_names_are_deleted_when_seen_twice_after_the_grace(stage: Stage) -> None:
    assert stage.collect() == {WINNER, LOSER, TWIN}
    assert stage.collect(GRACE / 2) == {WINNER, LOSER, TWIN}
    assert stage.collect(GRACE / 2) == {WINNER}
    assert stage.deleted == [(2, 6), (2, 6)]


def test_output_that_appears_again_is_collected_again(stage: Stage) -> None:
    stage.collect()
    stage.collect(GRACE)
    stage.put(LOSER)  # by a zombie

    assert stage.collect() == {WINNER, LOSER}
    assert stage.collect(GRACE) == {WINNER}


def test_unfinished_uploads_of_attempts_that_lost_are_removed(stage: Stage) -> None:
    store = MemoryObjectStore(multipart_bytes=4)

    def stop(_size_bytes: int) -> None:
        raise InterruptedError

    for prefix in (WINNER, LOSER):
        with pytest.raises(InterruptedError):
            store.write(f"{prefix}/large", b"0123456789", on_progress=stop)
    lost = LostOutputs(
        store=store, runs=stage.read, leads=lambda: True, clock=stage.clock, grace=timedelta(0)
    )

    lost.collect(threading.Event())

    assert [upload.key for upload in store.unfinished_uploads("")] == [f"{WINNER}/large"]


def test_output_of_an_open_attempt_stays(stage: Stage) -> None:
    stage.runs["run1"] = a_run(LOST, replace(WON, outcome=None, output=None), an_attempt(3, None))
    stage.put(OPEN)

    stage.collect()

    assert OPEN in stage.collect(GRACE)


@pytest.mark.parametrize("known", [True, False])
def test_output_of_an_unknown_run_or_task_stays(stage: Stage, known: bool) -> None:
    stage.runs = {"run1": replace(a_run(LOST, WON), tasks=Tasks([]))} if known else {}

    stage.collect()

    assert stage.collect(GRACE) == {WINNER, LOSER, TWIN}


def test_object_that_is_no_output_stays(stage: Stage) -> None:
    stage.store.write("sums/run1/load/notes", b"of somebody")
    stage.store.write("sums/run1/load/1/part", b"of a folder")

    stage.collect()
    stage.collect(GRACE)

    assert {"sums/run1/load/notes", "sums/run1/load/1/part"} < {info.key for info in stage.store.list("")}


def test_nothing_is_deleted_by_a_scheduler_that_does_not_lead(stage: Stage) -> None:
    stage.collect()
    stage.leads = False

    assert stage.collect(GRACE) == {WINNER, LOSER, TWIN}


def test_nothing_is_deleted_while_runs_cannot_be_read(stage: Stage) -> None:
    stage.collect()
    stage.down = True

    assert stage.collect(GRACE) == {WINNER, LOSER, TWIN}


def test_attempt_that_is_not_in_the_record_yet_is_not_lost() -> None:
    assert not is_lost(a_run(LOST), WINNER)
    assert is_lost(a_run(LOST), LOSER)


def test_no_attempt_of_a_run_whose_outputs_are_in_a_folder_is_named() -> None:
    assert is_lost(a_run(LOST, replace(WON, output="sums/run1/load/2")), WINNER)


def test_run_whose_record_cannot_be_read_hinders_no_other(stage: Stage) -> None:
    broken = f"sums/run0/load/1-{1:016x}"
    stage.put(broken)
    read = stage.runs.get

    def read_or_fail(run: RunId) -> Run | None:
        if run == "run0":
            raise UnreadableRecordError("runs/run0", "of a newer schema")
        return read(run)

    stage.lost = LostOutputs(
        store=stage.store, runs=read_or_fail, leads=lambda: True, clock=stage.clock, grace=timedelta(0)
    )

    assert stage.collect() == {WINNER, broken}
