"""Pooled attempts: an executor, its zygote and their drivers, with real processes and a board in files."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from nimbus.domain.attempts.slots import Holder
from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.pipelines.pipeline import Isolation, Limits, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.worker.host import procfs
from nimbus.worker.host.files import remove_tree
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.pool.folder import ExecutorFolder
from nimbus.worker.pool.pooled_executor import PooledExecutor
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, RecordingRegistrations, eventually

pytestmark = pytest.mark.usefixtures("shared_forks")

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


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()
    for folder in (made.data, made.root / "w1"):  # may be nested deeper than pytest can remove
        remove_tree(folder)


@pytest.fixture
def workers(bench: Bench) -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.close(SOON)
        assert worker.failure is None
    procfs.kill_all(lambda: _executors(bench), deadline_s=60.0)


def _started(bench: Bench, workers: list[Worker], **more: object) -> Worker:
    worker = bench.worker("w1", **more)
    worker.start()
    workers.append(worker)
    return worker


def _order(bench: Bench, text: str, *args: str, attempt: str = ATTEMPT, **more: object) -> None:
    script = bench.script(f"{attempt}/main.py", text)
    order = bench.order(script, attempt=attempt, args=args, isolation=Isolation.POOLED, **more)
    bench.board.assign("w1", order)


def _waiting(bench: Bench, tmp_path: Path, attempt: str = ATTEMPT) -> None:
    _order(bench, WAITS, str(tmp_path / "ran"), str(tmp_path / "gate"), attempt=attempt)
    eventually(lambda: _runs(tmp_path), "the task runs")


def _runs(tmp_path: Path) -> int:
    place = tmp_path / "ran"
    return place.read_text().count("ran") if place.exists() else 0


def _executors(bench: Bench) -> list[ProcessId]:
    return procfs.with_variable(EXECUTOR_VARIABLE, str(bench.root / "w1"))


def _executor(bench: Bench) -> ProcessId:
    (found,) = [one for one in _executors(bench) if _name(one) == "nimbus-executor"]
    return found


def _name(process: ProcessId) -> str:
    return Path(f"/proc/{process.pid}/comm").read_text().strip()


def _zygote(bench: Bench) -> ProcessId:
    executor = _executor(bench)
    (found,) = [one.id for one in procfs.living() if one.parent == executor.pid]
    return found


def _tasks(bench: Bench) -> list[str]:
    return [
        str(task.attempt) for folder in ExecutorFolder.all_in(bench.root / "w1") for task in folder.tasks()
    ]


def _gone(bench: Bench) -> bool:
    return not list(ExecutorFolder.all_in(bench.root / "w1"))


@pytest.mark.usefixtures("stored_logs")
def test_pooled_attempt_runs_in_a_child_with_its_context_log_and_output(
    bench: Bench, workers: list[Worker]
) -> None:
    registry = CollectorRegistry()
    _started(bench, workers, metrics=WorkerMetrics(registry))
    _order(
        bench,
        "from nimbus.task import context\nctx = context()\n"
        "print('task', ctx.task, list(ctx.output.iterdir()))\n(ctx.output / 'made').write_text('x')\n",
    )

    end = bench.await_end()

    assert (end.outcome, end.written_by, end.exit_code) == (Outcome.SUCCEEDED, "executor", 0)
    assert end.output is not None
    assert (bench.data / end.output / "made").read_text() == "x"
    claim = bench.slots().claim
    assert claim is not None
    assert (claim.holder, claim.nonce) == (Holder.POOLED, end.nonce)
    folder = bench.folder()
    eventually(lambda: bench.logs.read(folder.attempt) == b"task task []\n", "the log is stored")
    eventually(
        lambda: not any(next(ExecutorFolder.all_in(bench.root / "w1")).tasks()), "its folder is removed"
    )
    assert not folder.path.exists()
    ended = {"outcome": "succeeded"}
    eventually(
        lambda: registry.get_sample_value("nimbus_worker_attempts_ended_total", ended) == 1,
        "the worker has counted it",
    )
    launched = registry.get_sample_value("nimbus_worker_launch_duration_seconds_count", {"holder": "pooled"})
    assert launched == 1


@pytest.mark.parametrize("kind", ["pooled", "own interpreter"])
def test_no_bytecode_gets_into_a_release_that_the_task_could_write(
    bench: Bench, workers: list[Worker], kind: str
) -> None:
    bench.script(f"{ATTEMPT}/helper.py", "")
    child = bench.script(f"{ATTEMPT}/child.py", "import helper\n")
    bench.wheel("any-1.0-py3-none-any.whl", packed="")
    _started(bench, workers)
    _order(
        bench,
        "import subprocess, sys\nimport helper\nsubprocess.run([sys.executable, sys.argv[1]], check=True)\n",
        str(bench.release / child),
        dependencies=() if kind == "pooled" else ("*.whl",),
    )

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    assert not list(bench.release.rglob("__pycache__"))


CRASHES = [
    ("raise ValueError('no such day')", 1, "ValueError: no such day"),
    ("import sys; sys.exit(3)", 3, "exit code 3"),
    ("import os; os._exit(0)", 0, "in the middle"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9"),
    ("import ctypes; ctypes.string_at(0)", 139, "signal 11"),
    ("import os; os.kill(0, 9)", 137, "signal 9"),
]


def test_a_crash_of_user_code_harms_its_own_attempt_alone(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path, "run1.other.1")
    executor = _executor(bench)

    for number, (text, code, reason) in enumerate(CRASHES):
        _order(bench, text, attempt=f"run1.crash{number}.1")
        end = bench.await_end(f"run1.crash{number}.1")

        assert (end.outcome, end.exit_code) == (Outcome.FAILED, code), text
        assert reason in end.reason

    (tmp_path / "gate").touch()
    assert bench.await_end("run1.other.1").outcome is Outcome.SUCCEEDED
    assert _executor(bench) == executor


def test_killed_executor_loses_its_running_attempts_and_the_next_order_finds_another(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path)
    executor = _executor(bench)

    os.kill(executor.pid, signal.SIGKILL)

    end = bench.await_end()
    assert (end.outcome, end.written_by, end.reason) == (Outcome.LOST, "worker", "its executor died")
    assert bench.driver_tree() == []
    _order(bench, "print('next')", attempt="run1.next.1")
    assert bench.await_end("run1.next.1").outcome is Outcome.SUCCEEDED
    assert _executor(bench) != executor
    assert _runs(tmp_path) == 1


def test_killed_zygote_loses_its_running_attempts_and_the_executor_starts_another(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path)
    executor = _executor(bench)

    os.kill(_zygote(bench).pid, signal.SIGKILL)

    end = bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.LOST, "executor")
    assert bench.driver_tree() == []
    _order(bench, "print('next')", attempt="run1.next.1")
    assert bench.await_end("run1.next.1").outcome is Outcome.SUCCEEDED
    assert _executor(bench) == executor


def test_driver_that_waits_for_an_order_and_is_killed_is_replaced(
    bench: Bench, workers: list[Worker]
) -> None:
    _started(bench, workers)
    _order(bench, "print('first')")
    assert bench.await_end().outcome is Outcome.SUCCEEDED
    zygote = _zygote(bench)
    (waiting,) = eventually(lambda: procfs.descendants(zygote.pid), "a driver waits")

    os.kill(waiting, signal.SIGKILL)
    eventually(lambda: not procfs.descendants(zygote.pid), "it has ended")
    _order(bench, "print('next')", attempt="run1.next.1")

    assert bench.await_end("run1.next.1").outcome is Outcome.SUCCEEDED
    assert _zygote(bench) == zygote


def test_module_that_is_preloaded_is_imported_before_the_task_and_one_that_cannot_be_is_shown(
    bench: Bench, workers: list[Worker]
) -> None:
    settings = {"preload": ("wsgiref.util", "nimbus_has_none"), "env": {"SEEN_BY_LIBRARIES": "1"}}
    worker = _started(bench, workers, settings=settings)
    _order(bench, "import sys\nassert 'wsgiref.util' in sys.modules\n")

    assert bench.await_end().outcome is Outcome.SUCCEEDED

    state = cast(PooledExecutor, worker.executors[Holder.POOLED]).state
    assert re.fullmatch(r"pid \d+; not preloaded: nimbus_has_none \(ModuleNotFoundError: No mod.*\)", state)
    assert b"SEEN_BY_LIBRARIES=1" in (procfs.environment_of(_zygote(bench).pid) or b"").split(b"\0")


def test_executor_outlives_its_worker_until_its_attempts_have_ended(
    bench: Bench, workers: list[Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the worker's own fork server ends with it
    first = _started(bench, workers)
    _waiting(bench, tmp_path)
    executor = _executor(bench)
    first.close(SOON)
    second = _started(bench, workers)
    eventually(lambda: ATTEMPT in second.attempts(), "the successor knows of it")
    eventually(lambda: bench.slots().has_heartbeat, "the executor beats on")

    (tmp_path / "gate").touch()

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    assert _runs(tmp_path) == 1
    eventually(lambda: not procfs.is_alive(executor), "the executor ends")
    eventually(lambda: _gone(bench), "its folder is removed")


def test_executor_that_died_while_no_worker_lived_is_settled_at_the_next_start(
    bench: Bench, workers: list[Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the worker's own fork server ends with it
    first = _started(bench, workers)
    _waiting(bench, tmp_path)
    executor = _executor(bench)
    first.close(SOON)
    os.kill(executor.pid, signal.SIGKILL)
    eventually(lambda: not bench.driver_tree(), "the driver dies with it")

    _started(bench, workers)

    assert bench.await_end().outcome is Outcome.LOST
    eventually(lambda: _gone(bench), "its folder is removed")
    assert _runs(tmp_path) == 1


def test_end_that_an_executor_could_not_deliver_is_delivered_by_its_worker(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path)
    executor = _executor(bench)
    bench.board.cut_off(down=True)
    (tmp_path / "gate").touch()
    exits = next(ExecutorFolder.all_in(bench.root / "w1")).exits
    eventually(lambda: exits.exists() and exits.stat().st_size, "the record is on disk")

    os.kill(executor.pid, signal.SIGKILL)
    bench.board.cut_off(down=False)

    end = bench.await_end()
    assert (end.outcome, end.written_by) == (Outcome.SUCCEEDED, "executor")


def test_order_that_is_asked_to_stop_is_stopped(bench: Bench, workers: list[Worker], tmp_path: Path) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path)

    bench.board.request_stop(ATTEMPT)

    assert bench.await_end().outcome is Outcome.STOPPED
    assert bench.driver_tree() == []


def test_attempt_that_ignores_its_end_is_killed_after_the_grace(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers, settings={"stop_grace": timedelta(seconds=0.5)})
    text = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS

    _order(bench, text, str(tmp_path / "ran"), str(tmp_path / "gate"), timeout=timedelta(seconds=1))

    end = bench.await_end()
    assert (end.outcome, end.exit_code) == (Outcome.TIMED_OUT, 137)
    assert bench.driver_tree() == []


def test_attempt_that_was_closed_by_somebody_else_is_ended(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path)

    bench.board.remove_attempt(ATTEMPT)

    eventually(lambda: not bench.driver_tree(), "the driver is ended", 60.0)


def test_processes_that_a_task_leaves_behind_are_ended(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers)
    leaves = (
        "import os, subprocess, sys\n"
        "wait = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(wait)\n"
        "subprocess.Popen(wait, start_new_session=True, env={})\n"
        "print(os.getpid())\n"
    )
    _order(bench, leaves)
    assert bench.await_end().outcome is Outcome.SUCCEEDED
    zygote = _zygote(bench)

    left = partial(procfs.descendants, zygote.pid)
    eventually(lambda: len(left()) == 1, "nothing is left of it but the driver that waits for an order")


def test_what_a_running_task_has_detached_is_left_to_it(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    detaches = """
import subprocess, sys
sleep = "import time; time.sleep(600)"
start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)"
subprocess.run([sys.executable, "-c", start])
"""
    _order(bench, detaches + WAITS, str(tmp_path / "ran"), str(tmp_path / "gate"))
    eventually(lambda: _runs(tmp_path), "the task runs")
    assert len(bench.driver_tree()) == 2
    _order(bench, "", attempt="run1.other.1")
    bench.await_end("run1.other.1")
    _order(bench, "import time; time.sleep(2)", attempt="run1.third.1")
    bench.await_end("run1.third.1")

    assert len(bench.driver_tree()) == 2

    (tmp_path / "gate").touch()
    bench.await_end()
    eventually(lambda: not bench.driver_tree(), "what it detached is ended with it")


def test_claim_of_another_is_respected(bench: Bench, workers: list[Worker], tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from nimbus.domain.attempts.slots import Claim

    script = bench.script("main.py", WAITS)
    args = (str(tmp_path / "ran"), str(tmp_path / "gate"))
    order = bench.order(script, args=args, isolation=Isolation.POOLED)
    bench.board.claim(Claim(attempt=ATTEMPT, claimed_at=datetime.now(UTC), nonce="theirs"))
    worker = _started(bench, workers)
    bench.board.assign("w1", order)
    _order(bench, "", attempt="run1.other.1")
    bench.await_end("run1.other.1")

    eventually(lambda: not _tasks(bench), "nothing is left")

    assert not _runs(tmp_path)
    assert bench.slots().end is None
    assert worker.failure is None


def test_order_to_reap_beside_a_living_executor_ends_nothing(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    from dataclasses import replace

    _started(bench, workers)
    _waiting(bench, tmp_path)
    claim = bench.slots().claim
    second = bench.worker("w2")
    workers.append(second)
    second.start()
    order = bench.order("unused.py", attempt="run1.unused.1")
    reap = replace(order, attempt=ATTEMPT, kind=AssignmentKind.REAP, claim=claim)
    bench.board.assign("w2", reap)
    eventually(lambda: ATTEMPT in second.collecting(), "it was asked")
    os.kill(_executor(bench).pid, signal.SIGSTOP)
    assert bench.slots().end is None

    os.kill(_executor(bench).pid, signal.SIGCONT)
    (tmp_path / "gate").touch()

    assert bench.await_end().outcome is Outcome.SUCCEEDED


@pytest.mark.usefixtures("stored_logs")
def test_order_whose_release_has_a_module_of_the_zygotes_name_gets_its_own_interpreter(
    bench: Bench, workers: list[Worker]
) -> None:
    _started(bench, workers)
    bench.script(f"{ATTEMPT}/socket.py", "MINE = True")

    _order(
        bench, "import socket, sys\nassert socket.MINE\nprint('nimbus.worker.pool.zygote' in sys.modules)\n"
    )

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    folder = bench.folder()
    eventually(lambda: bench.logs.read(folder.attempt) == b"False\n", "the log is stored")


def test_driver_that_cannot_begin_is_refused(bench: Bench, workers: list[Worker], tmp_path: Path) -> None:
    _started(bench, workers)
    bench.data.mkdir(exist_ok=True)
    (bench.data / "bench").write_text("in the way")

    _order(bench, "")

    end = bench.await_end()
    assert end.outcome is Outcome.REFUSED
    assert "folders cannot be made" in end.reason


@pytest.mark.usefixtures("stored_logs")
def test_many_attempts_leave_nothing_behind(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers, settings={"slots": 8})
    names = [f"run1.t{number}.1" for number in range(100)]
    script = bench.script("main.py", "print('said')")
    for name in names:
        bench.board.assign("w1", bench.order(script, attempt=name, isolation=Isolation.POOLED))

    for name in names:
        assert bench.await_end(name).outcome is Outcome.SUCCEEDED
    eventually(lambda: not _tasks(bench), "all folders are removed")
    assert {bench.logs.read(bench.folder(name).attempt) for name in names} == {b"said\n"}


def test_pooled_attempt_above_its_limit_of_memory_is_ended_alone(
    bench: Bench, workers: list[Worker], tmp_path: Path
) -> None:
    _started(bench, workers)
    _waiting(bench, tmp_path, "run1.other.1")
    hungry = "import time\nheld = bytearray(b'x') * (200 << 20)\ntime.sleep(60)"

    _order(bench, hungry, limits=Limits(memory_bytes=100 << 20))

    end = bench.await_end()
    assert end.outcome is Outcome.FAILED
    assert "its limit is 100.0 MiB" in end.reason
    (tmp_path / "gate").touch()
    assert bench.await_end("run1.other.1").outcome is Outcome.SUCCEEDED


@pytest.mark.usefixtures("stored_logs")
def test_pooled_attempt_keeps_of_its_log_what_its_limit_allows(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers)
    text = "print('first')\nfor _ in range(2000): print('x' * 99)\nprint('last')\n"

    _order(bench, text, limits=Limits(log_bytes=20_000))

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    attempt = bench.folder().attempt
    eventually(lambda: bench.logs.read(attempt).endswith(b"last\n"), "the log is stored")
    assert bench.logs.read(attempt).startswith(b"first\n")
    assert len(bench.logs.read(attempt)) < 21_000


@pytest.mark.usefixtures("stored_logs")
def test_pooled_program_of_the_release_is_run(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers)
    order = bench.order(
        "sh", args=("-c", "echo said; exit 3"), task_kind=TaskKind.SHELL, isolation=Isolation.POOLED
    )
    bench.board.assign("w1", order)

    end = bench.await_end()

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 3)
    eventually(lambda: bench.logs.read(bench.folder().attempt) == b"said\n", "the log is stored")


NESTED = """
import os
folder = {folder}
os.chdir(folder)
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
"""


def test_attempt_that_nests_its_folders_deep_harms_nobody(bench: Bench, workers: list[Worker]) -> None:
    worker = _started(bench, workers)
    scratch = bench.script("scratch.py", NESTED.format(folder="os.environ['TMPDIR']"))
    output = bench.script(
        "output.py", NESTED.format(folder="__import__('nimbus.task').task.context().output")
    )
    for isolation in Isolation:
        ended, failed = f"run1.{isolation}.1", f"run2.{isolation}.1"
        bench.board.assign("w1", bench.order(scratch, attempt=ended, isolation=isolation))
        assert bench.await_end(ended).outcome is Outcome.SUCCEEDED
        eventually(lambda ended=ended: not bench.folder(ended).scratch.exists(), "its scratch is removed")  # type: ignore[misc]

        bench.board.assign("w1", bench.order(output, attempt=failed, isolation=isolation))
        end = bench.await_end(failed)
        assert end.outcome is Outcome.FAILED
        assert "nested" in end.reason
    _order(bench, "print('next')", attempt="run2.task.1")
    assert bench.await_end("run2.task.1").outcome is Outcome.SUCCEEDED
    eventually(lambda: not _tasks(bench), "all folders are removed")
    assert worker.failure is None


def test_driver_that_changes_its_group_is_ended_when_its_time_is_up(
    bench: Bench, workers: list[Worker]
) -> None:
    _started(bench, workers, settings={"stop_grace": timedelta(seconds=0.2), "slots": 4})
    leave = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.setpgid(0, os.getsid(0))\n"
    script = bench.script("main.py", leave + "time.sleep(600)\n")
    _waiting(bench, Path(bench.root), attempt="run2.task.1")

    attempts = {isolation: f"run1.{isolation}.1" for isolation in Isolation}
    for isolation, attempt in attempts.items():
        order = bench.order(script, attempt=attempt, isolation=isolation, timeout=timedelta(seconds=2))
        bench.board.assign("w1", order)

    for attempt in attempts.values():
        assert bench.await_end(attempt).outcome is Outcome.TIMED_OUT
    (bench.root / "gate").touch()
    assert bench.await_end("run2.task.1").outcome is Outcome.SUCCEEDED


def test_progress_that_is_none_harms_nobody(bench: Bench, workers: list[Worker], tmp_path: Path) -> None:
    _started(bench, workers, settings={"slots": 8})
    place = (
        "import os\nfrom pathlib import Path\nplace = Path(os.environ['TMPDIR']).parent / 'progress.json'\n"
    )
    made = [
        f"place.write_text({text})"
        for text in ("'[' * 200_000", "'{\"a\": \"' + 'x' * 10_000_000 + '\"}'", "'[1]'")
    ]
    made.append("os.mkfifo(place)")
    attempts = [f"run1.t{number}.1" for number in range(len(made))]
    for attempt, make in zip(attempts, made, strict=True):
        text = f"{place}{make}\n{WAITS}"
        _order(bench, text, str(tmp_path / "ran"), str(tmp_path / "gate"), attempt=attempt)
    eventually(lambda: _runs(tmp_path) == len(made), "the tasks run")
    _order(bench, "import time; time.sleep(5)", attempt="run2.task.1")

    assert bench.await_end("run2.task.1").outcome is Outcome.SUCCEEDED
    (tmp_path / "gate").touch()

    for attempt in attempts:
        assert bench.await_end(attempt).outcome is Outcome.SUCCEEDED


def test_worker_says_which_executor_it_has_or_why_none(bench: Bench, workers: list[Worker]) -> None:
    told = RecordingRegistrations()
    _started(bench, workers, registrations=told, settings={"heartbeat": timedelta(seconds=0.1)})
    none = "none: the next pooled task starts one"
    eventually(lambda: told.workers and told.workers[-1].executor == none, "the worker is registered")

    _order(bench, "print('fine')")
    assert bench.await_end().outcome is Outcome.SUCCEEDED

    executor = _executor(bench)
    eventually(lambda: told.workers[-1].executor == f"pid {executor.pid}", "the worker names it")

    procfs.kill(executor)

    eventually(lambda: told.workers[-1].executor == none, "the worker has none")


def test_worker_says_why_it_cannot_start_an_executor_and_runs_pooled_tasks_isolated(
    bench: Bench, workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(ForkLauncher, "fork_executor", fails)
    told = RecordingRegistrations()
    _started(bench, workers, registrations=told, settings={"heartbeat": timedelta(seconds=0.1)})

    _order(bench, "print('fine')")

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    why = "none: no more processes; pooled tasks run isolated"
    eventually(lambda: told.workers[-1].executor == why, "the worker says why")


def test_result_of_a_pooled_task_is_in_its_end(bench: Bench, workers: list[Worker]) -> None:
    _started(bench, workers)
    _order(bench, "from nimbus.task import context\ncontext().result(rows=3)\n")

    end = bench.await_end()
    assert (end.outcome, end.result) == (Outcome.SUCCEEDED, {"rows": 3})


def test_logs_that_storage_refuses_are_counted_and_told_until_it_takes_them(
    bench: Bench, workers: list[Worker]
) -> None:
    bench.connections = replace(bench.connections, logs={"kind": "refuses"})
    registrations = RecordingRegistrations()
    worker = _started(bench, workers, registrations=registrations)

    _order(bench, "print('said')")
    assert bench.await_end().outcome is Outcome.SUCCEEDED

    told = eventually(lambda: registrations.workers[-1].unstored_logs, "the registration says so")
    assert told.startswith("1 not stored: logs connection 'refuses' is of no known kind")
    assert worker.standing().leftover_logs == 1
