"""Purges of runs: deleted and kept parts, and the state after a purge that ends at any step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.s3_purges import S3Purges
from nimbus.config.sections import RetentionSection
from nimbus.domain.commands import CommandOutcome, PurgeRuns, QueuedCommand, StartRun, WithdrawDataset
from nimbus.domain.data.datasets import Dataset, versions_of
from nimbus.domain.data.outputs import OutputsNotHereError
from nimbus.domain.data.publications import Change, Partitioning, Publication
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import (
    AttemptId,
    CommandId,
    DatasetName,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.children import Parent
from nimbus.domain.runs.purge import Purged, PurgeOrder
from nimbus.domain.runs.run import Run, RunCause, RunPart, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Attempt, Outcome, Reused, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.engine.history_lookups import store_order
from nimbus.ports import KeptLog
from nimbus.scheduler.output_deletion import BucketOutputs, FolderOutputs
from nimbus.scheduler.purge import OutputPlace, RunPurge
from nimbus.telemetry.daemon import GarbageMetrics
from nimbus.worker.data.folder_checks import MARK
from nimbus.worker.host.files import remove_tree

NOW = datetime(2026, 3, 1, tzinfo=UTC)
P, LOAD = PipelineName("sums"), TaskName("load")
SPEC = TaskSpec(name=LOAD, kind=TaskKind.PYTHON, script="l.py")
COMMAND = CommandId("cmd-0000000001")
ALL = (RunPart.HISTORY,)


class KilledError(BaseException):
    """The leader died. Not an Exception, so that the engine cannot catch it."""


class MortalStore(MemoryObjectStore):
    """A store that kills its caller after a number of changing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.told: list[Callable[[], None]] = []

    def write(self, key: str, data: bytes | Path, **options: object) -> None:
        super().write(key, data)
        self._done()

    def delete(self, key: str) -> None:
        super().delete(key)
        self._done()

    def delete_many(self, keys: Iterable[str], before_each: object = None) -> None:
        super().delete_many(keys)
        self._done()

    def _done(self) -> None:
        for tell in self.told:
            tell()
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError


class HeldClock:
    def now(self) -> datetime:
        return NOW

    def elapsed_s(self) -> float:
        return 0.0


def a_run(run_id: str, age: timedelta, *, reuses: str | None = None, **changes: object) -> Run:
    attempt = Attempt(
        number=1,
        worker=WorkerId("w1"),
        opened_at=NOW - age,
        opened_by_epoch=1,
        outcome=Outcome.SUCCEEDED,
        output=f"sums/{reuses or run_id}/load/1-{0:016x}/manifest-{'0' * 64}.json",
    )
    reused = None if reuses is None else Reused(run=RunId(reuses), attempt=attempt)
    attempts = () if reused else (attempt,)
    task = TaskRun(spec=SPEC, state=TaskState.SUCCEEDED, attempts=attempts, reused=reused)
    run = Run(
        id=RunId(run_id),
        pipeline=P,
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW - age,
        created_at=NOW - age,
        finished_at=NOW - age,
        cause=RunCause.MANUAL,
        priority=Priority.LOW,
        failure_strategy=FailureStrategy.END,
        state=RunState.SUCCEEDED,
        tasks=Tasks([task]),
    )
    return replace(run, **changes)  # type: ignore[arg-type]


class Stage:
    """History, logs and outputs in buckets, and the records in ZooKeeper."""

    def __init__(self) -> None:
        self.store, self.data = MortalStore(), MortalStore()
        self.history, self.logs = S3History(self.store), S3LogArchive(self.store)
        self.live: list[Run] = []
        self.datasets: dict[DatasetName, Dataset] = {}
        self.waiting: list[QueuedCommand] = []
        self.leads = True
        self.metrics = CollectorRegistry()
        self.garbage = GarbageMetrics(self.metrics)
        self.outputs: OutputPlace = BucketOutputs(self.data, lambda: self.leads, self.garbage)

    def dataset(self, name: DatasetName) -> Dataset | None:
        return self.datasets.get(name)

    def all_commands(self) -> tuple[QueuedCommand, ...]:
        return tuple(self.waiting)

    def all_pipelines(self) -> tuple[PipelineRecord, ...]:
        return ()

    def all_runs(self) -> tuple[Run, ...]:
        return tuple(self.live)

    def keep(self, *runs: Run) -> None:
        """Store a run like one that has ended."""
        for run in runs:
            self.history.store_results(run.id, {LOAD: {"rows": 1}})
            self.history.store(run)
            if not any(task.reused for task in run.tasks.in_order()):
                for kept in KeptLog:
                    self.logs.append(AttemptId(run.id, LOAD, 1), 0, b"hello", kept)
                for name in ("a", "manifest"):
                    self.data.write(f"sums/{run.id}/load/1-{0:016x}/{name}", b"1234")

    def purge(self, **retention: timedelta) -> RunPurge:
        return RunPurge(
            history=self.history,
            store=self.store,
            outputs=self.outputs,
            state=self,
            leads=lambda: self.leads,
            retention=RetentionSection(**retention),
            clock=HeldClock(),
            metrics=self.garbage,
        )

    def retain(self, **retention: timedelta) -> None:
        self.purge(**retention).apply_retention(threading.Event())

    def order(self, *parts: RunPart, **what: object) -> None:
        order = PurgeOrder(what=PurgeRuns(parts=parts, reason="space", **what), at=NOW, by="ann")  # type: ignore[arg-type]
        self.history.order_purge(COMMAND, order)
        self.purge().carry_out_orders(threading.Event())

    def keys(self, about: str = "", store: MemoryObjectStore | None = None) -> list[str]:
        return [info.key for info in (store or self.store).list("") if about in info.key]

    def has_logs(self, run: str) -> bool:
        return bool(self.keys(f"logs/{run}/"))

    def has_outputs(self, run: str) -> bool:
        return bool(self.keys(f"sums/{run}/", self.data))


@pytest.fixture
def stage() -> Stage:
    return Stage()


OLD, YOUNG = timedelta(days=40), timedelta(days=20)
MONTH = timedelta(days=30)


def test_retention_purges_logs_that_are_older_and_says_so(stage: Stage) -> None:
    stage.keep(a_run("old", OLD), a_run("young", YOUNG))

    stage.retain(logs=MONTH)

    assert (stage.has_logs("old"), stage.has_logs("young")) == (False, True)
    assert stage.has_outputs("old")
    assert stage.history.read(RunId("old")) == a_run("old", OLD)
    gone = stage.history.purged(RunId("old"))
    assert gone is not None
    assert str(gone.parts[RunPart.LOGS]) == "purged on 2026-03-01 by retention (retention.logs is 30d)"
    assert stage.history.purged(RunId("young")) is None
    assert stage.metrics.get_sample_value("nimbus_gc_deleted_objects_total", {"where": "logs"}) == 2


def test_retention_counts_from_the_end_of_a_run(stage: Stage) -> None:
    stage.keep(replace(a_run("long", OLD), finished_at=NOW - YOUNG))

    stage.retain(logs=MONTH, history=MONTH)

    assert stage.has_logs("long")
    assert stage.history.read(RunId("long")) is not None


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED])
def test_retention_of_history_leaves_only_the_note(stage: Stage, state: RunState) -> None:
    stage.keep(replace(a_run("old", OLD), state=state))

    stage.retain(history=MONTH)

    assert stage.keys() == ["history/purged/runs/old.json"]
    assert stage.keys(store=stage.data) == []
    assert stage.history.recent(None, 10).runs == ()


@pytest.mark.parametrize("accepted", [False, True])
def test_retention_of_history_purges_outcomes_of_commands_too(stage: Stage, accepted: bool) -> None:
    for age in (OLD, YOUNG):
        outcome = CommandOutcome(
            command=COMMAND,
            accepted=accepted,
            code="",
            message="",
            decided_at=NOW - age,
            epoch=1,
            kind="start_run",
        )
        stage.history.store_outcomes([outcome])

    stage.retain(history=MONTH)

    assert [one.decided_at for one in stage.history.outcomes(None, 10)] == [NOW - YOUNG]


def test_second_retention_reads_no_run_whose_logs_are_purged(stage: Stage) -> None:
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))
    stage.retain(logs=MONTH)
    stage.store.corrupt("history/runs/old.json")
    read: list[RunId] = []
    stage.history.read = read.append  # type: ignore[method-assign,assignment]

    stage.retain(logs=MONTH)

    assert read == []


def test_purge_keeps_outputs_and_history_that_a_later_run_reuses(stage: Stage) -> None:
    stage.keep(a_run("old", OLD), a_run("rerun", YOUNG, reuses="old"))

    stage.retain(logs=MONTH, outputs=MONTH, history=MONTH)

    assert not stage.has_logs("old")
    assert stage.has_outputs("old")
    assert stage.history.read(RunId("old")) is not None
    assert stage.history.given(RunId("old")).results == {LOAD: {"rows": 1}}
    gone = stage.history.purged(RunId("old"))
    assert gone is not None
    assert gone.parts.keys() == {RunPart.LOGS}


def test_purge_takes_what_was_reused_once_the_run_that_reuses_it_goes(stage: Stage) -> None:
    stage.keep(a_run("old", OLD), a_run("rerun", OLD - timedelta(days=1), reuses="old"))

    stage.retain(outputs=MONTH)

    assert not stage.has_outputs("old")
    assert stage.keys("reused") == []


@pytest.mark.parametrize("part", [*RunPart])
def test_purge_keeps_a_run_that_is_in_zookeeper(stage: Stage, part: RunPart) -> None:
    run = a_run("old", OLD)
    stage.keep(run)
    stage.live = [run]
    before = stage.keys()

    stage.order(part, run_id=run.id)

    assert stage.keys() == before


def test_purge_keeps_a_child_run_while_its_parent_is_in_zookeeper(stage: Stage) -> None:
    parent = Parent(run=RunId("parent"), top=RunId("parent"), task=LOAD, attempt=1, index=0, depth=1)
    child = a_run("child", OLD, parent=parent)
    stage.keep(child)
    stage.live = [a_run("parent", OLD, state=RunState.RUNNING, finished_at=None)]

    stage.retain(history=MONTH)
    assert stage.history.read(child.id) == child

    stage.live = []
    stage.retain(history=MONTH)
    assert stage.history.read(child.id) is None


def a_rerun_of(run: str) -> QueuedCommand:
    start = StartRun(
        pipeline=P,
        run_id=RunId("new"),
        selection=Selection(scope=Scope.FAILED, reuse=RunId(run), is_rerun=True),
    )
    return QueuedCommand(id=CommandId("cmd-9"), command=start, submitted_at=NOW)


@pytest.mark.parametrize("is_run", [False, True])
def test_purge_keeps_outputs_that_a_rerun_comes_to_use_between_its_two_looks(
    stage: Stage, is_run: bool
) -> None:
    stage.keep(a_run("old", OLD))

    def asked() -> None:
        if stage.history.purged(RunId("old")) is not None:
            stage.waiting = [] if is_run else [a_rerun_of("old")]
            stage.live = [a_run("new", timedelta(0), reuses="old")] if is_run else []

    stage.store.told.append(asked)

    stage.retain(outputs=MONTH, history=MONTH)

    assert stage.has_outputs("old")
    assert stage.history.read(RunId("old")) is not None
    assert stage.history.purged(RunId("old")) is None  # the note is deleted, so the id can be used again


def test_order_purges_runs_of_a_pipeline_in_a_state(stage: Stage) -> None:
    stage.keep(
        a_run("good", OLD),
        a_run("bad", OLD, state=RunState.FAILED),
        a_run("late", YOUNG, state=RunState.FAILED),
        a_run("other", OLD, state=RunState.FAILED, pipeline=PipelineName("q")),
    )

    stage.order(RunPart.LOGS, pipeline=P, before=NOW - MONTH, states=(RunState.FAILED,))

    assert [run for run in ("good", "bad", "late", "other") if not stage.has_logs(run)] == ["bad"]
    assert stage.keys("purge-orders") == []


def test_order_for_logs_and_outputs_takes_a_run_that_has_lost_only_one_of_them(stage: Stage) -> None:
    stage.keep(a_run("old", OLD))
    stage.retain(outputs=MONTH)

    stage.order(RunPart.LOGS, RunPart.OUTPUTS, pipeline=P, before=NOW)

    assert not stage.has_logs("old")


def test_order_goes_on_in_the_next_look_when_one_takes_too_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbus.scheduler.purge.AT_ONCE", 1)
    monkeypatch.setattr("nimbus.scheduler.purge.LONGEST", timedelta(0))
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))

    stage.order(RunPart.LOGS, pipeline=P, before=NOW)
    assert [run for run in ("old", "older") if stage.has_logs(run)] == ["older"]
    stage.purge().carry_out_orders(threading.Event())

    assert not stage.has_logs("older")


def test_order_reaches_old_runs_behind_newer_ones_that_it_does_not_take(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbus.scheduler.purge.AT_ONCE", 1)
    monkeypatch.setattr("nimbus.scheduler.purge.LONGEST", timedelta(0))
    stage.keep(a_run("good", OLD), a_run("fine", OLD), a_run("bad", OLD * 2, state=RunState.FAILED))
    what = PurgeRuns(parts=ALL, reason="space", pipeline=P, before=NOW - MONTH, states=(RunState.FAILED,))
    stage.history.order_purge(COMMAND, PurgeOrder(what=what, at=NOW, by="ann"))
    purge = stage.purge()

    for _ in range(4):
        purge.carry_out_orders(threading.Event())

    assert stage.history.read(RunId("bad")) is None
    assert stage.keys("purge-orders") == []


def test_failure_in_an_earlier_look_keeps_the_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("nimbus.scheduler.purge.AT_ONCE", 1)
    monkeypatch.setattr("nimbus.scheduler.purge.LONGEST", timedelta(0))
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))
    outputs, failing = stage.outputs, [RunId("old")]

    class Failing:
        def delete(self, purged: Purged) -> bool:
            if purged.run in failing:
                raise PermissionError(purged.run)
            return outputs.delete(purged)

    stage.outputs = Failing()
    what = PurgeRuns(parts=ALL, reason="space", pipeline=P, before=NOW)
    stage.history.order_purge(COMMAND, PurgeOrder(what=what, at=NOW, by="ann"))
    purge = stage.purge()

    for _ in range(3):
        purge.carry_out_orders(threading.Event())
    assert [run.id for run in stage.history.recent(None, 10).runs] == ["old"]
    failing.clear()
    monkeypatch.setattr(HeldClock, "elapsed_s", lambda _: 60.0)
    for _ in range(2):
        purge.carry_out_orders(threading.Event())

    assert stage.history.recent(None, 10).runs == ()
    assert stage.keys("purge-orders") == []


@pytest.mark.parametrize("rerun_is", [{"state": RunState.SUCCEEDED}, {"finished_at": NOW - YOUNG}])
def test_purge_does_not_note_a_run_whose_rerun_is_older_but_is_not_taken(
    stage: Stage, rerun_is: dict[str, object]
) -> None:
    rerun = a_run("rerun", OLD - timedelta(days=1), reuses="old", **{"state": RunState.FAILED, **rerun_is})
    stage.keep(a_run("old", OLD, state=RunState.FAILED), rerun)
    noted: list[str] = []
    stage.store.told.append(lambda: noted.extend(stage.keys("purged/")))

    stage.order(*ALL, pipeline=P, before=NOW - MONTH, states=(RunState.FAILED,))

    assert noted == []  # a leader that ends now has not purged these


def test_folder_that_cannot_be_deleted_holds_up_no_other_run(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))
    for run in ("old", "older"):
        (tmp_path / "sums" / run).mkdir(parents=True)
    stage.outputs = in_folder(tmp_path, stage)

    def guarded(path: Path) -> None:
        if path.name != "old":
            remove_tree(path)

    monkeypatch.setattr("nimbus.scheduler.output_deletion.remove_tree", guarded)

    stage.order(*ALL, pipeline=P, before=NOW)

    assert [run.id for run in stage.history.recent(None, 10).runs] == ["old"]
    assert stage.keys("purge-orders") == [f"history/purge-orders/{COMMAND}.json"]


def test_output_nested_deeper_than_pythons_recursion_is_purged(stage: Stage, tmp_path: Path) -> None:
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))
    for run, depth in (("old", 1), ("older", 1500)):
        place = os.open(tmp_path, os.O_RDONLY)
        for name in ("sums", run, *["d"] * depth):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=place)
            below = os.open(name, os.O_RDONLY, dir_fd=place)
            os.close(place)
            place = below
        os.close(place)
    stage.outputs = in_folder(tmp_path, stage)

    try:
        stage.retain(outputs=MONTH)

        assert list((tmp_path / "sums").iterdir()) == []
    finally:
        remove_tree(tmp_path / "sums")  # pytest cannot


def test_run_harms_no_other_purge_whatever_its_own_raises(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))
    delete = stage.outputs.delete

    def raises(purged: Purged) -> bool:
        if purged.run == "older":
            raise RecursionError
        return delete(purged)

    monkeypatch.setattr(stage.outputs, "delete", raises)

    stage.retain(outputs=MONTH)

    assert (stage.has_outputs("old"), stage.has_outputs("older")) == (False, True)


def recorded(mark: str) -> str:
    """The mark of the cluster's folder of outputs; see `Registrations.data_mark`."""
    del mark
    return "ours"


def in_folder(folder: Path, stage: Stage) -> FolderOutputs:
    (folder / MARK).write_text("ours")
    return FolderOutputs(folder, recorded, stage.garbage)


def test_order_that_always_fails_is_tried_more_and_more_rarely(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.keep(a_run("old", OLD))
    stage.outputs = FolderOutputs(tmp_path / "away", recorded, stage.garbage)
    minutes, tried, delete = 0, list[int](), stage.outputs.delete
    monkeypatch.setattr(HeldClock, "elapsed_s", lambda _: minutes * 60.0)
    monkeypatch.setattr(stage.outputs, "delete", lambda purged: tried.append(minutes) or delete(purged))
    order = PurgeOrder(what=PurgeRuns(parts=ALL, reason="space", run_id=RunId("old")), at=NOW, by="ann")
    stage.history.order_purge(COMMAND, order)
    purge = stage.purge()

    for minutes in range(200):  # noqa: B007 - the clock reads it
        purge.carry_out_orders(threading.Event())

    assert tried == [0, 1, 3, 7, 15, 31, 63, 123, 183]


def test_order_stays_while_outputs_cannot_be_reached(stage: Stage, tmp_path: Path) -> None:
    stage.keep(a_run("old", OLD))
    stage.outputs = FolderOutputs(tmp_path / "away", recorded, stage.garbage)

    stage.order(*ALL, run_id=RunId("old"))

    assert stage.history.read(RunId("old")) is not None
    stage.outputs = BucketOutputs(stage.data, lambda: True, stage.garbage)
    stage.purge().carry_out_orders(threading.Event())
    assert stage.history.read(RunId("old")) is None
    assert stage.keys("purge-orders") == []


@pytest.mark.parametrize("mark", ["", "of another cluster"])
def test_folder_without_the_mark_of_the_clusters_outputs_counts_as_not_mounted(
    stage: Stage, tmp_path: Path, mark: str
) -> None:
    place = stage.outputs = in_folder(tmp_path, stage)
    (tmp_path / MARK).write_text(mark)
    for run in ("old", "other"):
        (tmp_path / "sums" / run / "load" / "1").mkdir(parents=True)
        (tmp_path / "sums" / run / "load" / "1" / "rows.csv").write_text("1,2")
    (tmp_path / "sums" / "old" / "link").symlink_to(tmp_path / "sums" / "other")
    stage.keep(a_run("old", OLD))
    stage.retain(outputs=MONTH)
    gone = stage.history.purged(RunId("old"))
    assert gone is not None
    with pytest.raises(OutputsNotHereError, match=MARK):
        place.delete(gone)
    assert (tmp_path / "sums" / "old" / "load" / "1" / "rows.csv").exists()

    (tmp_path / MARK).write_text("ours")
    stage.retain(outputs=MONTH)

    assert [path.name for path in (tmp_path / "sums").iterdir()] == ["other"]
    assert (tmp_path / "sums" / "other" / "load" / "1" / "rows.csv").read_text() == "1,2"
    assert stage.metrics.get_sample_value("nimbus_gc_deleted_bytes_total", {"where": "outputs"}) == 3


def test_purge_deletes_nothing_without_leadership(stage: Stage) -> None:
    stage.keep(a_run("old", OLD))
    stage.leads = False
    before = (stage.keys(), stage.keys(store=stage.data))

    stage.retain(history=MONTH)

    assert (stage.keys(), stage.keys(store=stage.data)) == before


@pytest.mark.parametrize("ends", ["leadership", "process"])
def test_purge_reads_no_more_runs_once_it_is_to_end(stage: Stage, ends: str) -> None:
    stage.keep(*(a_run(f"good{number}", OLD) for number in range(3)))
    what = PurgeRuns(parts=ALL, reason="space", pipeline=P, before=NOW, states=(RunState.FAILED,))
    stage.history.order_purge(COMMAND, PurgeOrder(what=what, at=NOW, by="ann"))
    stopping, read, found = threading.Event(), stage.history.read, list[RunId]()

    def reads(run: RunId) -> Run | None:
        found.append(run)
        if ends == "leadership":
            stage.leads = False
        else:
            stopping.set()
        return read(run)

    stage.history.read = reads  # type: ignore[method-assign]
    stage.purge().carry_out_orders(stopping)

    assert len(found) == 1
    assert stage.keys("purge-orders") == [f"history/purge-orders/{COMMAND}.json"]


def test_purge_passes_over_a_record_that_cannot_be_read(stage: Stage) -> None:
    stage.keep(a_run("broken", OLD), a_run("old", OLD))
    stage.store.write("history/runs/broken.json", b"{")

    stage.retain(history=MONTH)

    assert stage.history.read(RunId("old")) is None
    assert stage.has_logs("broken")


def test_half_deleted_run_whose_note_cannot_be_read_holds_up_no_other_run(stage: Stage) -> None:
    stage.keep(a_run("old", OLD))
    stage.store.write("history/purging/broken", b"1")
    stage.store.write("history/purged/runs/broken.json", b"{")

    stage.retain(logs=MONTH)

    assert not stage.has_logs("old")
    assert stage.keys("purging") == ["history/purging/broken"]


def test_object_that_is_no_entry_of_the_index_holds_up_no_run(stage: Stage) -> None:
    """For example one that a person has put there by mistake."""
    stage.keep(a_run("old", OLD))
    for folder in ("history/recent", "history/pipelines/sums"):
        stage.store.write(f"{folder}/readme.txt", b"?")

    assert [run.id for run in stage.history.recent(None, 10).runs] == ["old"]
    assert [run.id for run in stage.history.recent(P, 10).runs] == ["old"]
    stage.order(RunPart.LOGS, pipeline=P, before=NOW - MONTH)

    assert not stage.has_logs("old")
    assert stage.keys("purge-orders") == []


def is_whole(stage: Stage, run: RunId) -> None:
    """Check that readers see no partial run: it is complete, reported as purged, or not found."""
    gone = stage.history.purged(run)
    parts = set() if gone is None else gone.parts.keys()
    known = stage.history.read(run)
    assert known is not None or RunPart.HISTORY in parts
    listed = [one.id for one in stage.history.recent(None, 10).runs]
    assert (run in listed) is (known is not None)
    assert (run in [one.id for one in stage.history.recent(P, 10).runs]) is (known is not None)
    if known is not None:
        assert stage.history.given(run).results == {LOAD: {"rows": 1}}
    if RunPart.LOGS not in parts:
        for kept in KeptLog:
            assert stage.logs.read(AttemptId(run, LOAD, 1), kept=kept) == b"hello"
    if RunPart.OUTPUTS not in parts:
        assert len(stage.keys(f"sums/{run}/", stage.data)) == 2


def purged_until(calls: int | None, store: str, by_order: bool) -> tuple[Stage, bool]:
    """Run a purge whose leader dies after a number of calls. Returns whether it died."""
    stage = Stage()
    stage.keep(a_run("old", OLD), a_run("older", OLD * 2))
    if by_order:
        what = PurgeRuns(parts=ALL, reason="space", pipeline=P, before=NOW - MONTH)
        stage.history.order_purge(COMMAND, PurgeOrder(what=what, at=NOW, by="ann"))
    mortal = getattr(stage, store)
    mortal.left = calls
    try:
        _go(stage, by_order)
    except KilledError:
        mortal.left = None
        return stage, True
    mortal.left = None
    return stage, False


def _go(stage: Stage, by_order: bool) -> None:
    if by_order:
        stage.purge().carry_out_orders(threading.Event())
    else:
        stage.retain(logs=MONTH, outputs=MONTH, history=MONTH)


@pytest.mark.parametrize("by_order", [True, False])
@pytest.mark.parametrize("store", ["store", "data"])
def test_purge_that_is_killed_after_any_call_leaves_no_half_and_the_next_one_ends_it(
    store: str, by_order: bool
) -> None:
    whole, _ = purged_until(None, store, by_order)
    kills = 0
    while True:
        stage, died = purged_until(kills, store, by_order)
        for run in ("old", "older"):
            is_whole(stage, RunId(run))
        if not died:
            break
        kills += 1
        _go(stage, by_order)
        assert (stage.keys(), stage.keys(store=stage.data)) == (whole.keys(), whole.keys(store=whole.data))
    assert kills >= (10 if store == "store" else 2)
    assert whole.keys() == ["history/purged/runs/old.json", "history/purged/runs/older.json"]
    assert S3Purges(whole.store).purged(RunId("old")) is not None


def published(run_id: str, age: timedelta, number: int, keep: timedelta | None = None, **more: int) -> Run:
    run = a_run(run_id, age)
    publication = Publication(dataset=DatasetName("sums"), keep=keep, **more)
    (task,) = run.tasks.in_order()
    spec = replace(task.spec, publishes=(publication,))
    return replace(run, number=number, tasks=Tasks([replace(task, spec=spec)]))


def test_retention_keeps_the_newest_version_of_a_dataset_until_a_newer_one_is_there(stage: Stage) -> None:
    first, second = published("first", 2 * OLD, 1), published("second", OLD, 2)
    stage.keep(first)
    stage.retain(logs=MONTH, outputs=MONTH, history=MONTH)

    assert (stage.has_logs("first"), stage.has_outputs("first")) == (False, True)
    assert stage.history.read(first.id) == first

    stage.keep(second)
    stage.retain(logs=MONTH, outputs=MONTH, history=MONTH)

    assert (stage.has_outputs("first"), stage.has_outputs("second")) == (False, True)
    assert [one.run for one in stage.history.versions(DatasetName("sums"), 10)] == ["second"]


def test_retention_takes_a_version_that_is_older_than_its_dataset_keeps(stage: Stage) -> None:
    stage.keep(published("first", OLD, 1, keep=MONTH))

    stage.retain(outputs=MONTH)

    assert not stage.has_outputs("first")
    assert stage.history.versions(DatasetName("sums"), 10) == ()


def test_retention_keeps_as_many_versions_as_the_dataset_says_and_what_is_pinned(stage: Stage) -> None:
    runs = [
        published(f"r{number}", OLD - timedelta(hours=number), number, keep_versions=2) for number in range(4)
    ]
    stage.keep(*runs)
    _, (_, pinned), _, _ = (one for run in runs for one in versions_of(run))
    reader = replace(a_run("reader", MONTH), state=RunState.RUNNING, pins={"sums": (pinned,)})
    stage.live = [reader]

    stage.retain(outputs=MONTH)

    assert [stage.has_outputs(run.id) for run in runs] == [False, True, True, True]
    order = PurgeOrder(
        what=PurgeRuns(parts=(RunPart.OUTPUTS,), reason="space", run_id=runs[2].id), at=NOW, by="ann"
    )
    with pytest.raises(RefusedError, match=r"one of the newest that `keep.versions` of a dataset keeps"):
        store_order(stage.history, COMMAND, order)

    stage.live = []
    stage.retain(outputs=MONTH)
    assert [stage.has_outputs(run.id) for run in runs] == [False, False, True, True]


@pytest.mark.parametrize("is_there", [False, True])
def test_purge_keeps_what_a_waiting_rerun_will_read_as_its_run_did(stage: Stage, is_there: bool) -> None:
    first, second = published("first", 2 * OLD, 1), published("second", OLD, 2)
    (_, pinned), *_ = versions_of(first)
    reader = a_run("reader", MONTH / 2, pins={"sums": (pinned,)})
    stage.keep(first, second, reader)
    stage.live = [reader] if is_there else []

    def asked() -> None:
        if stage.history.purged(first.id) is not None:
            stage.waiting = [a_rerun_of("reader")]

    stage.store.told.append(asked)
    stage.retain(outputs=MONTH)
    assert stage.has_outputs(first.id)

    stage.store.told.clear()
    stage.waiting = []
    stage.retain(outputs=MONTH)
    assert not stage.has_outputs(first.id), "the run itself has ended, so it reads nothing"


def test_version_that_a_withdrawal_publishes_again_is_kept(stage: Stage) -> None:
    name, (first, second) = (
        DatasetName("sums"),
        (published("first", 2 * OLD, 1), published("second", OLD, 2)),
    )
    stage.keep(first, second)
    (_, version), *_ = versions_of(first)
    change = Change(command=COMMAND, by="ann", withdrew=2, restored=1)
    again = replace(version, number=3, change=change)
    withdrawal = WithdrawDataset(dataset=name, partition="", reason="wrong")
    stage.waiting = [QueuedCommand(id=COMMAND, command=withdrawal, submitted_at=NOW)]
    stage.retain(outputs=MONTH)
    assert stage.has_outputs("first"), "the command may find it"

    stage.waiting = []
    stage.datasets[name] = Dataset(name=name, pipeline=P, partition=Partitioning.WHOLE, unstored=(again,))
    stage.retain(outputs=MONTH)
    assert stage.has_outputs("first"), "history does not have the withdrawal yet"

    stage.history.store_versions(name, [again])
    stage.datasets = {}
    stage.retain(outputs=MONTH)
    assert (stage.has_outputs("first"), stage.has_outputs("second")) == (True, False)


def test_order_to_purge_a_published_version_is_refused(stage: Stage) -> None:
    run = published("first", OLD, 1)
    stage.keep(run)
    order = PurgeOrder(
        what=PurgeRuns(parts=(RunPart.OUTPUTS,), reason="space", run_id=run.id), at=NOW, by="ann"
    )

    with pytest.raises(RefusedError, match="a dataset has a version of it that no newer one has replaced"):
        store_order(stage.history, COMMAND, order)
