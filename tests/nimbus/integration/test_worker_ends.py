"""How the end of a task's code becomes the end of its attempt, for each kind of driver."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import Isolation, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import files
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, eventually

ANSWERS_WITH_ZERO = """
import signal, sys, threading, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
"""
RUNS_IN_MAIN = ANSWERS_WITH_ZERO + "Path(sys.argv[1]).touch()\nwhile True:\n    time.sleep(0.02)\n"
TELLS_ITS_PID = """
import os
from nimbus.task import context
(context().output / "pid").write_text(str(os.getpid()))
"""
ENDS_ITS_CHILDREN = """
import multiprocessing
fork = multiprocessing.get_context("fork")
ready = fork.Event()
def works():
    ready.set()
    while True:  # not one long sleep: a signal just before it would be handled after it
        time.sleep(0.02)
child = fork.Process(target=works)
child.start()
ready.wait()
child.terminate()
child.join()
assert child.exitcode == 0, "it inherits the handler"
"""
RUNS_IN_A_THREAD = (
    ANSWERS_WITH_ZERO
    + """
from concurrent.futures import thread
def works():
    while not thread._shutdown:  # until the script has ended: a signal before that would not end this thread
        time.sleep(0.01)
    Path(sys.argv[1]).touch()
    while True:
        time.sleep(0.02)
threading.Thread(target=works).start()
"""
)
ENDS_LATE = """
import atexit, os, pickle, sys, threading, time
from concurrent.futures import ThreadPoolExecutor, thread
from pathlib import Path
from nimbus.task import context

out, done = context().output, Path(os.environ["NIMBUS_CONTEXT"]).parent / "work" / "done"

class Row:
    pass

def write(name):
    while not thread._shutdown:  # until the script has ended
        time.sleep(0.01)
    pickle.loads(pickle.dumps(Row()))
    (out / name).write_text(f"{done.exists()} {sys.argv[1:]}")

threading.Thread(target=write, args=("thread",)).start()
ThreadPoolExecutor(1).submit(write, "pool")
atexit.register(write, "handler")
kept_open = open(out / "open", "w")
kept_open.write("flushed")
"""
FORKS = """
import os, sys, time
from pathlib import Path
from nimbus.task import context

if os.fork() == 0:
    sys.exit(0)
os.wait()
if os.fork() == 0:
    print("the child falls out of the script")
else:
    os.wait()
    done = Path(os.environ["NIMBUS_CONTEXT"]).parent / "work" / "done"
    (context().output / "done").write_text(str(done.exists()))
    os._exit(0)
"""
USES_TEMPORARY_FILES = """
import json, multiprocessing, os, tempfile
from nimbus.task import context

if __name__ == "__main__":
    with multiprocessing.Manager() as manager:  # listens at a Unix socket in a temporary folder
        assert manager.list([1])[0] == 1
    place = tempfile.gettempdir()
    told = {"named": place, "real": os.path.realpath(place), "mode": os.stat(place).st_mode & 0o777}
    (context().output / "told").write_text(json.dumps(told))
"""
Run = Callable[..., None]


@pytest.fixture
def bench(tmp_path: Path, forks: ForkLauncher) -> Iterator[Bench]:
    made = Bench(tmp_path, forks)
    yield made
    made.close()


each_way = pytest.mark.parametrize("way", ["forked", "own interpreter", "pooled"])
"""Each way that a driver can run, for what the driver does. The rest does its runner, or its executor."""


@pytest.fixture(params=["forked", "pooled"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(way: str, bench: Bench, shared_forks: None) -> Iterator[Run]:
    """Starts an attempt."""
    workers: list[Worker] = []

    def start(text: str, *args: str, **more: Any) -> None:
        script = bench.script("task.py", text)
        if way == "pooled":
            workers.append(bench.worker())
            workers[0].start()
            order = bench.order(script, args=args, isolation=Isolation.POOLED, **more)
            bench.board.assign("w1", order)
            return
        folder, order = bench.folder(), bench.order(script, args=args, **more)
        folder.create(order)
        extra = {"LC_TIME": "C"} if way == "own interpreter" else {}  # read when a program starts
        bench.launch(folder, bench.startup(extra=extra))

    yield start
    for worker in workers:
        worker.close(timedelta(seconds=10))


def _stopped_while_it_ran(bench: Bench, marker: Path) -> End:
    eventually(marker.exists, "the task runs")
    bench.board.request_stop("run1.task.1")
    return bench.await_end()


@pytest.mark.parametrize("text", [RUNS_IN_MAIN, RUNS_IN_A_THREAD])
def test_task_that_answers_a_stop_with_exit_code_0_is_stopped(
    bench: Bench, run: Run, tmp_path: Path, text: str
) -> None:
    run(text, str(tmp_path / "runs"))

    end = _stopped_while_it_ran(bench, tmp_path / "runs")

    assert (end.outcome, end.exit_code, end.output) == (Outcome.STOPPED, 0, None)


def test_task_that_answers_its_timeout_with_exit_code_0_has_timed_out(
    bench: Bench, run: Run, tmp_path: Path
) -> None:
    run(RUNS_IN_MAIN, str(tmp_path / "runs"), timeout=timedelta(seconds=3))

    assert bench.await_end().outcome is Outcome.TIMED_OUT


@each_way
def test_task_that_answers_a_signal_of_others_with_exit_code_0_has_failed(
    bench: Bench, run: Run, tmp_path: Path
) -> None:
    run(TELLS_ITS_PID + RUNS_IN_MAIN, str(tmp_path / "runs"))
    eventually((tmp_path / "runs").exists, "the task runs")

    os.kill(int((bench.data / "bench/run1/task/1/pid").read_text()), signal.SIGTERM)

    end = bench.await_end()
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 0)
    assert "SIGTERM told the task to end" in end.reason


def test_task_that_closes_all_descriptors_succeeds(bench: Bench, run: Run) -> None:
    run("import os\nos.closerange(3, 1024)\n")

    end = bench.await_end()

    assert end.outcome is Outcome.SUCCEEDED, end.reason


@each_way
def test_signal_to_a_child_does_not_fail_a_task(bench: Bench, run: Run) -> None:
    run(ANSWERS_WITH_ZERO + ENDS_ITS_CHILDREN)

    end = bench.await_end()

    assert end.outcome is Outcome.SUCCEEDED, end.reason


@each_way
def test_threads_and_exit_handlers_of_a_task_end_before_its_attempt(bench: Bench, run: Run) -> None:
    run(ENDS_LATE, "argument")

    end = bench.await_end()

    assert end.outcome is Outcome.SUCCEEDED, end.reason
    output = bench.data / str(end.output)
    expected = dict.fromkeys(("thread", "pool", "handler"), "False ['argument']") | {"open": "flushed"}
    assert {file.name: file.read_text() for file in output.iterdir()} == expected


@each_way
def test_child_that_a_task_has_forked_does_not_end_the_attempt(bench: Bench, run: Run) -> None:
    run(FORKS)

    end = bench.await_end()

    assert (bench.data / "bench/run1/task/1/done").read_text() == "False"
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 0)
    assert "os._exit" in end.reason


def test_folder_for_temporary_files_is_short_private_and_gone_at_the_end(bench: Bench, run: Run) -> None:
    run(USES_TEMPORARY_FILES)

    end = bench.await_end()

    assert end.outcome is Outcome.SUCCEEDED, end.reason
    told = json.loads((bench.data / str(end.output) / "told").read_text())
    work = Path(told["real"])
    assert (work.parts[-3:-1], told["mode"]) == (("run1.task.1", "work"), 0o700)
    assert work.is_relative_to(bench.root / "w1")
    eventually(lambda: not os.path.lexists(Path(told["named"]).parent), "its link is removed")


def test_links_of_attempts_whose_folders_are_gone_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SHORT_PATHS", tmp_path)
    (tmp_path / "work").mkdir()
    kept = [
        files.short_path_of(tmp_path / "work"),
        tmp_path / "nimbus-of-a-user",
        tmp_path / "nimbus-0123abcd",
    ]
    kept[0].symlink_to(tmp_path / "work")
    kept[1].symlink_to(tmp_path / "gone" / "work")
    kept[2].symlink_to(tmp_path / "gone")
    files.short_path_of(tmp_path / "gone" / "work").symlink_to(tmp_path / "gone" / "work")

    files.drop_dangling_short_paths()

    assert {link for link in tmp_path.iterdir() if link.is_symlink()} == set(kept)


@pytest.mark.parametrize("found", ["file", "link elsewhere", "link of another user"])
def test_short_path_that_somebody_else_has_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    folder = AttemptFolder(tmp_path / "run1.task.1")
    monkeypatch.setattr(files, "_SHORT_PATHS", tmp_path)
    link = files.short_path_of(folder.work)
    if found == "file":
        link.touch()
    else:
        link.symlink_to(folder.work if found == "link of another user" else tmp_path)
    if found == "link of another user":
        monkeypatch.setattr(os, "getuid", lambda: link.lstat().st_uid + 1)

    assert folder.short_scratch(None) == folder.scratch


@pytest.mark.spark
@pytest.mark.usefixtures("java_home")
@pytest.mark.timeout(300)
def test_spark_runs_until_threads_handlers_and_forked_children_have_ended(bench: Bench) -> None:
    script = bench.script(
        "task.py",
        """
import atexit, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
from nimbus.task import context

spark = SparkSession.builder.getOrCreate()
def write(name):
    spark.range(3).write.parquet(str(context().output / name))
if os.fork() == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
ThreadPoolExecutor(2).submit(write, "pool")
threading.Thread(target=write, args=("thread",)).start()
atexit.register(write, "handler")
""",
    )
    order = bench.order(script, task_kind=TaskKind.PYSPARK)
    folder = bench.folder()
    folder.create(order)
    bench.launch(folder, bench.startup())

    end = bench.await_end(deadline_s=200)

    assert end.outcome is Outcome.SUCCEEDED, end.reason
    output = bench.data / str(end.output)
    assert all((output / name / "_SUCCESS").exists() for name in ("pool", "thread", "handler"))
