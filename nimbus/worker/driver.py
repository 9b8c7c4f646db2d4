"""Runs a task's own code: `python -I -m nimbus.worker.driver <attempt folder> [<descriptor>]`.

Started by a runner, isolated: nothing of the release can be imported before the runner says go by one byte
on the descriptor. EOF means that the attempt is not ours: then this ends with 75 and user code never ran.
An executor starts it when it may go.
Knows nothing of ZooKeeper and S3. Threads: main, which runs the task, and `driver-progress` for Spark.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nimbus.worker.environment import spark_settings, submit_arguments

EXIT_NOT_STARTED = 75
"""Of a driver that was never let go, and of a runner whose claim was refused: user code did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlan:
    """What a driver reads from `driver.json`. Written by the runner of the same version."""

    kind: str
    script: str
    args: Sequence[str]
    release_root: str
    python_path: Sequence[str]
    wheels: Sequence[str]
    master: str
    worker_conf: dict[str, str]
    task_conf: dict[str, str]
    user: Mapping[str, Any] | None = None
    """Fields of the `TaskUser` that it runs as; None: as who forks it."""

    @property
    def uses_spark(self) -> bool:
        """It gets a Spark runtime."""
        return self.kind in ("pyspark", "sql")

    @property
    def script_path(self) -> Path:
        """The task's file."""
        return Path(self.release_root, self.script)

    def import_folders(self) -> list[str]:
        """What the task's code can import from beside the installed packages, first wins."""
        folders = [Path(self.release_root, folder) for folder in self.python_path]
        return [str(folder) for folder in (*folders, *map(Path, self.wheels))]


def main(arguments: Sequence[str]) -> None:
    """Prepare, wait for go, run. Exceptions of the task's code end the process as they would anywhere."""
    folder = Path(arguments[0])
    plan = read_plan(folder)
    if plan.uses_spark:
        _prepare_spark(folder, plan)
    if len(arguments) > 1:
        _await_go(int(arguments[1]))
    stop_progress = _start_progress(folder) if plan.uses_spark else _nothing
    try:
        _run_task(plan)
    finally:
        stop_progress()
    sys.stdout.flush()
    # Only now: what ends the process from within (os._exit, native code) must not look like success.
    (folder / "work" / "done").write_bytes(b"")


def read_plan(folder: Path) -> DriverPlan:
    """Read the plan of an attempt from its folder."""
    return DriverPlan(**json.loads((folder / "driver.json").read_text(encoding="utf-8")))


def _await_go(go_fd: int) -> None:
    if os.read(go_fd, 1) != b"g":
        sys.stderr.write("the attempt is not ours to run: the task's code was not started\n")
        os._exit(EXIT_NOT_STARTED)
    os.close(go_fd)


def _prepare_spark(folder: Path, plan: DriverPlan) -> None:
    """Do the slow imports while the runner still claims the attempt: none of it is user code."""
    conf = spark_settings(
        application=folder.name,
        master=plan.master,
        worker_conf=plan.worker_conf,
        task_conf=plan.task_conf,
        local_dir=folder / "work" / "spark-local",
        temporary=folder / "work" / "tmp",
    )
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(plan.master, conf)
    if plan.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    import pyspark.sql  # noqa: F401 - imported for its time


def _start_progress(folder: Path) -> Callable[[], None]:
    from nimbus.worker.driver_progress import ProgressThread

    thread = ProgressThread(folder / "work" / "progress.json")
    thread.start()
    return thread.close


def _nothing() -> None:
    pass


def _run_task(plan: DriverPlan) -> None:
    imports = plan.import_folders()
    inherited = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    # For what the task starts itself: Spark's Python workers, above all.
    os.environ["PYTHONPATH"] = os.pathsep.join([*imports, *inherited])
    sys.path[:0] = [str(plan.script_path.parent), *imports, *inherited]
    try:
        if plan.kind == "sql":
            from nimbus.worker.sql_task import run_sql

            run_sql(plan.script_path, plan.args)
        else:
            _run_script(plan)
    finally:
        if plan.uses_spark:
            _stop_spark()


def _run_script(plan: DriverPlan) -> None:
    sys.argv = [str(plan.script_path), *plan.args]
    try:
        runpy.run_path(str(plan.script_path), run_name="__main__")
    except SystemExit as exc:
        if exc.code not in (None, 0):  # `sys.exit()` at the end of a script is a success
            raise


def _stop_spark() -> None:
    """Stop the session that the task left open: its files would be half-written otherwise."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped, unused-ignore]
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # there is no public way to ask without creating one
    if context is not None:
        try:
            context.stop()
        except (Py4JError, OSError) as exc:  # the JVM has died; the task's own error says more
            sys.stderr.write(f"Spark could not be stopped: {exc}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
