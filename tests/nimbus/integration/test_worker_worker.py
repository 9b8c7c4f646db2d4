"""Workers with real runners: orders, attempts of an earlier worker, and runners that die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.domain.attempts.slots import Claim
from nimbus.domain.attempts.workers import AssignmentKind, WorkerInfo
from nimbus.domain.ids import ReleaseDigest
from nimbus.domain.pipelines.pipeline import Isolation
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import StoreUnavailableError
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.worker.host import procfs
from nimbus.worker.host.identity import WorkDirInUseError
from nimbus.worker.launcher import ForkLauncher, launch
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, RecordingRegistrations, eventually

ATTEMPT = "run1.task.1"
SOON = timedelta(seconds=60)
WAITS = """
import sys, time
from pathlib import Path
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""


class HealingError(Exception):
    retryable = True


class FollowingRegistrations(RecordingRegistrations):
    """Registrations that are unavailable whenever the board is."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.refused = 0

    def publish_worker(self, info: WorkerInfo) -> datetime | None:
        try:
            self._bench.slots()
        except StoreUnavailableError:
            self.refused += 1
            raise
        return super().publish_worker(info)


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def _ended(registry: CollectorRegistry) -> dict[str, float]:
    found = {one: _value(registry, "nimbus_worker_attempts_ended_total", outcome=one) for one in Outcome}
    return {outcome.value: count for outcome, count in found.items() if count}


@pytest.fixture
def bench(tmp_path: Path, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def own_forks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker of the test has a fork server of its own, which ends with it."""
    monkeypatch.setattr("nimbus.worker.worker.ForkLauncher", ForkLauncher)


@pytest.fixture
def workers(bench: Bench) -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.close(SOON)
        assert worker.failure is None


def _started(bench: Bench, workers: list[Worker], name: str = "w1", **more: object) -> Worker:
    worker = bench.worker(name, **more)
    worker.start()
    workers.append(worker)
    return worker


def _ordered(bench: Bench, tmp_path: Path) -> None:
    args = (str(tmp_path / "ran"), str(tmp_path / "gate"))
    bench.board.assign("w1", bench.order(bench.script("task.py", WAITS), args=args))


def _runs(tmp_path: Path) -> int:
    place = tmp_path / "ran"
    return place.read_text().count("ran") if place.exists() else 0


def test_worker_registers_and_runs_what_it_is_ordered(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    registrations = RecordingRegistrations()
    registry = CollectorRegistry()
    worker = _started(
        bench,
        workers,
        registrations=registrations,
        settings={"slots": 3},
        metrics=WorkerMetrics(registry),
    )
    _ordered(bench, tmp_path)
    eventually(lambda: _runs(tmp_path), "the task runs")
    assert _value(registry, "nimbus_worker_slots") == 3
    assert _value(registry, "nimbus_worker_registered") == 1
    assert _value(registry, "nimbus_worker_attempts", phase="running") == 1
    assert _value(registry, "nimbus_worker_launch_duration_seconds_count", holder="process") == 1
    (tmp_path / "gate").touch()

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    eventually(lambda: _ended(registry) == {"succeeded": 1}, "the worker has counted it")
    assert _value(registry, "nimbus_worker_attempts", phase="running") == 0
    assert (registrations.workers[0].id, registrations.workers[0].slots) == ("w1", 3)
    worker.drain()
    eventually(lambda: registrations.workers[-1].draining, "the worker says that it drains")
    assert _value(registry, "nimbus_worker_draining") == 1


@pytest.mark.usefixtures("own_forks")
def test_closed_worker_leaves_its_task_running_and_its_successor_launches_nothing_twice(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    first = _started(bench, workers)
    _ordered(bench, tmp_path)
    eventually(lambda: _runs(tmp_path), "the task runs")
    first.close(SOON)
    registrations = RecordingRegistrations()
    _started(bench, workers, registrations=registrations)
    eventually(lambda: len(registrations.workers) > 2, "the successor has read its orders, and goes on")
    eventually(lambda: bench.slots().has_heartbeat, "the runner beats on")

    (tmp_path / "gate").touch()

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    assert _runs(tmp_path) == 1


def test_killed_runner_is_reported_lost_with_its_whole_tree_gone(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    _started(bench, workers, metrics=WorkerMetrics(registry))
    _ordered(bench, tmp_path)
    eventually(lambda: _runs(tmp_path), "the task runs")
    runner = bench.runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)

    end = bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.LOST, "worker")
    eventually(lambda: _ended(registry) == {"lost": 1}, "the worker has counted it")
    assert bench.processes() == []


@pytest.mark.usefixtures("own_forks")
def test_runner_that_died_while_no_worker_lived_is_reported_lost_at_the_next_start(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    first = _started(bench, workers)
    _ordered(bench, tmp_path)
    eventually(lambda: _runs(tmp_path), "the task runs")
    first.close(SOON)
    runner = bench.runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    eventually(lambda: not procfs.is_alive(runner), "the runner's end")

    _started(bench, workers)

    assert bench.await_end().outcome is Outcome.LOST
    eventually(lambda: bench.folder().is_delivered, "the folder is settled")
    assert _runs(tmp_path) == 1


@pytest.mark.usefixtures("own_forks")
def test_record_that_a_runner_could_not_deliver_is_delivered_by_the_next_worker(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    first = _started(bench, workers)
    _ordered(bench, tmp_path)
    eventually(lambda: _runs(tmp_path), "the task runs")
    first.close(SOON)
    bench.board.cut_off(down=True)
    (tmp_path / "gate").touch()
    eventually(lambda: bench.folder().exit_record() is not None, "the record is on disk")
    runner = bench.runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGTERM)
    eventually(lambda: not bench.processes(), "the runner leaves on SIGTERM")
    bench.board.cut_off(down=False)
    assert bench.slots().end is None

    _started(bench, workers)

    end = bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.SUCCEEDED, "runner")
    eventually(lambda: bench.folder().is_delivered, "the folder is settled")


@pytest.mark.usefixtures("own_forks")
def test_record_of_an_attempt_that_is_gone_is_not_tried_for_ever(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    first = _started(bench, workers)
    _ordered(bench, tmp_path)
    (tmp_path / "gate").touch()
    bench.await_end()
    eventually(lambda: bench.folder().is_delivered, "delivery")
    first.close(SOON)
    bench.folder().delivered_file.unlink()
    bench.board.remove_attempt(ATTEMPT)

    _started(bench, workers)

    eventually(lambda: bench.folder().is_delivered, "the folder is settled")


def test_log_that_a_runner_could_not_store_is_stored_by_its_worker(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    folder = bench.folder()
    order = bench.order(bench.script("task.py", "print('said')\n"))
    folder.create(order)
    launch(folder, bench.startup())
    eventually(lambda: folder.is_delivered, "delivery")
    folder.delivered_file.unlink()
    registry, storage = CollectorRegistry(), MemoryObjectStore()
    storage.unavailable = True

    _started(bench, workers, metrics=WorkerMetrics(registry), logs=S3LogArchive(storage))
    eventually(lambda: _value(registry, "nimbus_worker_leftover_logs") == 1, "the log is counted")
    storage.unavailable = False

    eventually(lambda: _value(registry, "nimbus_worker_leftover_logs") == 0, "no log is left")
    assert S3LogArchive(storage).read(folder.attempt) == b"said\n"


def test_order_whose_release_is_not_to_be_had_is_refused_and_can_never_start(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    bench.trouble = LookupError("release 0000 of bench is not in storage")
    registry = CollectorRegistry()
    _started(bench, workers, metrics=WorkerMetrics(registry))
    _ordered(bench, tmp_path)

    end = bench.await_end()
    assert _ended(registry) == {"refused": 1}

    assert (end.outcome, end.written_by) == (Outcome.REFUSED, "worker")
    assert "not in storage" in end.reason
    assert not end.pipeline_at_fault, "the worker may look in the wrong bucket"
    claim = bench.slots().claim
    assert claim is not None
    assert claim.fenced_by_epoch == 0


def test_order_whose_script_is_missing_is_refused_with_its_name(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers)
    bench.board.assign("w1", bench.order("jobs/absent.py"))

    end = bench.await_end()

    assert end.outcome is Outcome.REFUSED
    assert "jobs/absent.py" in end.reason
    assert end.pipeline_at_fault


def test_order_with_a_bad_wheel_is_refused_by_its_pipelines_fault(
    bench: Bench, workers: list[Worker]
) -> None:
    bench.script("broken-1-py3-none-any.whl", "no wheel")
    _started(bench, workers)
    script = bench.script("task.py", "print(1)\n")
    bench.board.assign("w1", bench.order(script, dependencies=("*.whl",)))

    end = bench.await_end()

    assert end.outcome is Outcome.REFUSED
    assert "broken-1-py3-none-any.whl is damaged" in end.reason
    assert end.pipeline_at_fault


@pytest.mark.parametrize("isolation", Isolation)
def test_two_tasks_use_two_versions_of_one_library(
    bench: Bench, workers: list[Worker], isolation: Isolation
) -> None:
    bench.wheel("wheels/lib-1.0-py3-none-any.whl", lib="VERSION = 1\n")
    bench.wheel("wheels/other-1.0-py3-none-any.whl", other="VERSION = 1\n")
    bench.wheel("new/lib-2.0-py3-none-any.whl", lib="VERSION = 2\n")
    _started(bench, workers)
    text = """
import sys, lib
try:
    import other
except ModuleNotFoundError:
    other = None
sys.exit(10 * lib.VERSION + (other is not None))
"""
    script = bench.script("task.py", text)
    ends: dict[str, int | None] = {}
    for task, patterns in (
        ("new", ("new/*.whl", "wheels/*.whl")),
        ("old", ("wheels/*.whl",)),
        ("alone", ("new/*.whl",)),
    ):
        order = bench.order(script, attempt=f"run1.{task}.1", dependencies=patterns, isolation=isolation)
        bench.board.assign("w1", order)
        ends[task] = bench.await_end(f"run1.{task}.1").exit_code

    assert ends == {"new": 21, "old": 11, "alone": 20}


def test_order_waits_while_storage_is_away_and_runs_when_it_is_back(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    bench.trouble = HealingError("S3 is away")
    _started(bench, workers)
    (tmp_path / "gate").touch()
    _ordered(bench, tmp_path)
    eventually(lambda: bench.asked > 1, "the worker asks again")
    assert bench.slots().claim is None
    bench.trouble = None

    assert bench.await_end().outcome is Outcome.SUCCEEDED


def test_order_whose_release_is_on_the_disk_does_not_wait_for_downloads(
    bench: Bench, workers: list[Worker]
) -> None:
    script = bench.script("task.py", "print(1)\n")
    slow = [f"run1.slow{n}.1" for n in range(3)]
    for n, attempt in enumerate(slow):
        absent = ReleaseDigest(str(n + 1) * 64)
        bench.missing[absent] = threading.Event()
        bench.board.assign("w1", bench.order(script, attempt=attempt, release=absent))
    _started(bench, workers, settings={"slots": 4})
    eventually(lambda: bench.asked == 2, "two downloads are under way")

    bench.board.assign("w1", bench.order(script))

    try:
        assert bench.await_end(deadline_s=15).outcome is Outcome.SUCCEEDED
        assert [bench.slots(attempt).claim for attempt in slow] == [None, None, None]
    finally:
        for arrived in bench.missing.values():
            arrived.set()
    for attempt in slow:
        assert bench.await_end(attempt).outcome is Outcome.SUCCEEDED


def test_order_that_is_withdrawn_while_it_is_prepared_is_dropped(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    bench.trouble = HealingError("S3 is away")
    worker = _started(bench, workers)
    _ordered(bench, tmp_path)
    eventually(lambda: ATTEMPT in worker.attempts(), "the order is seen")

    bench.board.unassign("w1", ATTEMPT)

    eventually(lambda: ATTEMPT not in worker.attempts(), "the order is dropped")
    assert (bench.slots().claim, bench.folder().exists) == (None, False)


def test_runner_that_dies_before_its_claim_is_refused_with_its_last_words(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    broken = replace(bench.connections, board={"kind": "nowhere"})
    _started(bench, workers, connections=broken)
    _ordered(bench, tmp_path)

    end = bench.await_end()

    assert end.outcome is Outcome.REFUSED
    assert "nowhere" in end.reason
    assert _runs(tmp_path) == 0


def test_attempt_of_another_worker_on_this_host_is_left_while_its_runner_lives_then_reaped(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    args = (str(tmp_path / "ran"), str(tmp_path / "gate"))
    order = bench.order(bench.script("task.py", WAITS), args=args)
    folder = bench.folder(worker="w9")
    folder.create(order)
    runner = launch(folder, bench.startup(worker="w9"))
    eventually(lambda: _runs(tmp_path), "the task runs")
    claim = bench.slots().claim
    assert runner is not None
    reap = replace(order, kind=AssignmentKind.REAP, claim=claim)
    bench.board.assign("w1", reap)
    worker = _started(bench, workers)
    eventually(lambda: ATTEMPT in worker.collecting(), "the order is seen")
    assert bench.slots().end is None

    os.kill(runner.pid, signal.SIGKILL)

    end = bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.LOST, "worker")
    eventually(lambda: bench.processes() == [], "the tree is gone")
    assert _runs(tmp_path) == 1


def test_success_that_a_dead_worker_could_not_deliver_is_delivered_by_another_of_the_host(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    args = (str(tmp_path / "ran"), str(tmp_path / "gate"))
    order = bench.order(bench.script("task.py", WAITS), args=args)
    folder = bench.folder(worker="w9")
    folder.create(order)
    runner = launch(folder, bench.startup(worker="w9"))
    eventually(lambda: _runs(tmp_path), "the task runs")
    claim = bench.slots().claim
    bench.board.cut_off(down=True)
    (tmp_path / "gate").touch()
    eventually(lambda: folder.exit_record() is not None, "the record is on disk")
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    eventually(lambda: not bench.processes(), "the runner's end")
    bench.board.cut_off(down=False)

    bench.board.assign("w1", replace(order, kind=AssignmentKind.REAP, claim=claim))
    _started(bench, workers)

    end = bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.SUCCEEDED, "runner")


def test_attempt_that_a_leader_fenced_is_not_ended_by_its_worker(bench: Bench, workers: list[Worker]) -> None:
    order = bench.order(bench.script("task.py", "print(1)\n"))
    bench.board.claim(Claim(attempt=ATTEMPT, fenced_by_epoch=7, claimed_at=datetime.now(UTC)))
    _started(bench, workers)
    bench.board.assign("w1", order)

    eventually(lambda: bench.folder().is_delivered, "the worker drops it")

    assert bench.slots().end is None


def test_second_worker_in_one_folder_is_refused(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers)

    with pytest.raises(WorkDirInUseError, match=r"worker\.work_dir"):
        bench.worker().start()


def test_worker_that_starts_without_zookeeper_takes_orders_once_it_is_there(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _ordered(bench, tmp_path)
    (tmp_path / "gate").touch()
    bench.board.cut_off(down=True)
    registrations = FollowingRegistrations(bench)
    _started(bench, workers, registrations=registrations)
    eventually(lambda: registrations.refused, "a registration is refused")

    bench.board.cut_off(down=False)

    assert bench.await_end().outcome is Outcome.SUCCEEDED


def test_delivered_folders_are_removed_after_their_time(bench: Bench, workers: list[Worker]) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", "print(1)\n")))
    folder.mark_delivered("long ago")

    _started(bench, workers, settings={"keep_attempts": timedelta(0)})

    eventually(lambda: not folder.path.exists(), "the folder is removed")
