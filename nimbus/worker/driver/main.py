"""Runs a task's own code: `python -I -m nimbus.worker.driver <attempt folder> [<go> [<gateway>]]`.

A runner starts it isolated: no file of the release can be imported before the runner sends go, one byte on
the first descriptor. EOF means that this runner did not win the claim: the driver exits with 75, and user
code never ran. An executor starts it after the claim, so there is no wait. Does not use ZooKeeper or S3.
Threads: main, which runs the task; for Spark `driver-progress`, and `driver-accumulators` after its stop.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from nimbus.task import ACCESS_VARIABLE, context, wrap_inputs
from nimbus.templates.names import at_release
from nimbus.worker.driver.environment import set_local_address, set_submit_arguments, settings_of
from nimbus.worker.driver.program_end import completed, die_if_interrupted
from nimbus.worker.driver.programs import (
    FlowBook,
    become,
    run_pipeline,
    settings_for,
    spark_submit,
    variables,
)
from nimbus.worker.host.files import write_new

EXIT_NOT_STARTED = 75
"""Exit code of a driver that got no "go", and of a runner whose claim was refused: user code did not run."""
_MAX_SIGNALS = 1 << 16
"""As many as a pipe holds: later ones are not noted."""
_EXIT_AFTER_MAIN = "spark.submit.callSystemExitOnMainExit"
"""Without it, the JVM of a jar waits for ever for threads that are not daemons."""


@dataclass(frozen=True)
class DriverPlan:
    """The content of `driver.json`. The same release writes and reads it."""

    kind: str
    script: str
    main_class: str
    args: Sequence[str]
    release_root: str
    python_path: Sequence[str]
    wheels: Sequence[str]
    master: str
    worker_conf: dict[str, str]
    task_conf: dict[str, str]
    limits: Mapping[str, Any]
    """Fields of `nimbus.domain.pipelines.pipeline.Limits`."""
    interpreter: str = ""
    """The Python that runs it, if it is not ours; it imports our modules from `bundle`."""
    bundle: str = ""
    user: Mapping[str, Any] | None = None
    """Fields of the `TaskUser` that it runs as; None: the user of the process that forks it."""
    connect: bool = False
    """Its Spark is a session on a Connect server."""

    @property
    def uses_spark(self) -> bool:
        """True if its code gets a Spark session."""
        return self.kind in ("pyspark", "sql")

    @property
    def starts_spark(self) -> bool:
        """True if it gets its own Spark runtime."""
        return self.kind in ("pyspark", "sql", "spark_pipeline") and not self.connect

    @property
    def has_jvm(self) -> bool:
        """True if it starts a JVM, or is replaced by one."""
        return self.uses_spark or self.kind in ("spark_submit", "spark_pipeline")

    @property
    def is_program(self) -> bool:
        """True if the driver executes another program."""
        return self.kind in ("shell", "spark_submit")

    @property
    def script_path(self) -> Path:
        """The task's file."""
        return Path(self.release_root, self.script)

    @property
    def is_host_program(self) -> bool:
        """True if a shell task's program is searched in PATH."""
        return self.kind == "shell" and "/" not in self.script

    @property
    def program(self) -> str:
        """A shell task's program: a file of the release if it contains a `/`, else one of the host."""
        return self.script if self.is_host_program else str(self.script_path)

    def placed(self) -> DriverPlan:
        """The plan with the path of the release in arguments and properties."""
        root = self.release_root
        return replace(
            self,
            args=[at_release(text, root) for text in self.args],
            task_conf={name: at_release(text, root) for name, text in self.task_conf.items()},
        )

    def import_folders(self) -> list[str]:
        """Folders that the task's code can import from, before the installed packages; the first wins."""
        folders = [Path(self.release_root, folder) for folder in self.python_path]
        return [str(folder) for folder in (*folders, *map(Path, self.wheels))]


def main(arguments: Sequence[str]) -> NoReturn:
    """Run as a program."""
    folder = Path(arguments[0])
    status = run(folder, read_plan(folder).placed(), *map(int, arguments[1:]))
    die_if_interrupted(status)
    sys.exit(status)


def run(folder: Path, plan: DriverPlan, waits_on: int | None = None, gateway: int | None = None) -> int:
    """Prepare, wait for go, run the task's code, its threads and its exit handlers; then stop Spark.

    A child that the task has forked returns from here, too. It ends like a child of any program, and does
    nothing to the attempt.

    Args:
        folder: The attempt's folder.
        plan: The driver's plan.
        waits_on: Descriptor from which it reads go; None: do not wait.
        gateway: See `nimbus.worker.jvm.gateway`; None: Spark starts a JVM.

    Returns:
        The exit status of the task's code; negative for a signal.
    """
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))  # isolated, it was ignored
    _take_inputs_on_demand()
    if plan.starts_spark:
        _prepare_spark(folder, plan, gateway)
    bind_session = _prepare_connect(folder, plan) if plan.connect else _nothing
    if waits_on is not None:
        _await_go(waits_on)
    bind_session()
    if plan.is_program:
        become(_command(folder, plan), os.environ | variables(context()))
    if plan.uses_spark:
        from nimbus.worker.data.source_offer import offer_source

        offer_source(connect=plan.connect)
    book = FlowBook(sys.stdout)
    stop_spark, check_output = _watch_spark(folder, book) if plan.starts_spark else (_nothing, _nothing)
    driver, told_to_end = os.getpid(), _note_signals()
    status = completed(partial(_run_task, plan, book), plan.release_root)
    if os.getpid() != driver:
        return status
    is_cut_short = status == 0 and told_to_end()
    stop_spark()
    if is_cut_short:  # in the form of an exception, so that it becomes the reason
        sys.stderr.write("SystemExit: SIGTERM told the task to end before its code had ended\n")
    elif status == 0:
        check_output()
        sys.stdout.flush()
        # Written last: a process that ends early (os._exit, native code) must not look like a success.
        write_new(folder / "work" / "done", b"")
    return status


def _take_inputs_on_demand() -> None:
    """Inside a cluster, copy inputs from a bucket to this host only when the task reads them."""
    access = json.loads(os.environ.get(ACCESS_VARIABLE, "{}"))
    if "gateway" in access:
        from nimbus.worker.data.signed import CopiedInputs

        wrap_inputs(partial(CopiedInputs, access["gateway"]))


def read_plan(folder: Path) -> DriverPlan:
    """Read the plan of an attempt from its folder. Whoever writes it for this host has placed it."""
    return DriverPlan(**json.loads((folder / "driver.json").read_bytes()))


def _await_go(go_fd: int) -> None:
    if os.read(go_fd, 1) != b"g":
        sys.stderr.write("the attempt is not ours to run: the task's code was not started\n")
        os._exit(EXIT_NOT_STARTED)
    os.close(go_fd)


def _command(folder: Path, plan: DriverPlan) -> list[str]:
    if plan.kind == "shell":
        return [plan.program, *plan.args]
    conf = {_EXIT_AFTER_MAIN: "true", **settings_of(folder, plan)}
    set_local_address(plan.master)
    return spark_submit(plan.script_path, plan.main_class, plan.args, master=plan.master, conf=conf)


def _prepare_spark(folder: Path, plan: DriverPlan, gateway: int | None) -> None:
    """Do the slow imports while the runner claims the attempt. None of this is user code."""
    conf = settings_of(folder, plan)
    if plan.kind == "spark_pipeline":
        conf = settings_for(conf, str(context().output))
    set_submit_arguments(plan.master, conf)
    if python := conf.get("spark.pyspark.python"):  # PySpark itself reads only the variable
        os.environ["PYSPARK_PYTHON"] = python
    import pyspark.sql  # noqa: F401 - imported for its time

    from nimbus.worker.driver.spark import change_stop

    change_stop(folder / "work" / "cost.json")
    if gateway is not None:
        from nimbus.worker.jvm.gateway import use_kept_jvm

        use_kept_jvm(gateway, conf, folder / "work" / "jvm")


def _prepare_connect(folder: Path, plan: DriverPlan) -> Callable[[], None]:
    """Create the session. The returned function must be called after go, when the runner has opened it."""
    from nimbus.worker.connect import client

    session = client.make_session(folder)

    def bind() -> None:
        opened = json.loads((folder / "session.json").read_text(encoding="utf-8"))
        client.bind_session(session, opened["server_session_id"])
        if jars := plan.task_conf.get("spark.jars"):
            session.addArtifacts(*jars.split(","))

    return bind


def _watch_spark(folder: Path, book: FlowBook) -> tuple[Callable[[], None], Callable[[], None]]:
    """Write its progress, and watch its output; return what stops Spark, and what then checks the output."""
    from nimbus.worker.driver.spark import stop_spark, watch_output
    from nimbus.worker.driver.spark_figures import ProgressThread

    progress = ProgressThread(folder / "work" / "progress.json", book.figures)
    progress.start()

    def stop() -> None:
        progress.close()
        stop_spark()

    return stop, watch_output(context().output)


def _note_signals() -> Callable[[], bool]:
    """Note the signals that handlers of the task take; the result is True if a SIGTERM came.

    Without a handler, SIGTERM ends the process. An event loop of the task that handles signals itself hides
    it.
    """
    reads, writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=partial(signal.set_wakeup_fd, -1))

    def told_to_end() -> bool:
        with suppress(OSError):  # none came, or the task has closed the pipe
            return signal.SIGTERM in os.read(reads, _MAX_SIGNALS)
        return False

    return told_to_end


def _nothing() -> None:
    pass


def _run_task(plan: DriverPlan, book: FlowBook) -> None:
    imports = plan.import_folders()
    inherited = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    # For processes that the task starts, above all Spark's Python workers.
    ours = [plan.bundle] if plan.bundle else []  # for the format `nimbus`
    os.environ["PYTHONPATH"] = os.pathsep.join([*imports, *inherited, *ours])
    sys.path[:0] = [str(plan.script_path.parent), *imports, *inherited]
    if plan.kind == "sql":
        from nimbus.worker.driver.sql_task import WAREHOUSE, run_sql

        has_warehouse = WAREHOUSE in plan.worker_conf or WAREHOUSE in plan.task_conf
        conf = {} if plan.connect else plan.task_conf
        run_sql(plan.script_path, plan.args, conf, keeps_tables=plan.starts_spark and not has_warehouse)
    elif plan.kind == "spark_pipeline":
        run_pipeline(plan.script_path, plan.args, master=plan.master, book=book)
    else:
        _run_script(plan)


def _run_script(plan: DriverPlan) -> None:
    """Run a script as `__main__`, and leave it there for its threads and exit handlers."""
    file = str(plan.script_path)
    sys.argv = [file, *plan.args]
    main_module = ModuleType("__main__")
    vars(main_module).update(__file__=file, __cached__=None, __builtins__=builtins)
    del sys.modules["__main__"]  # so that the script's module comes last: `program_end` drops it
    sys.modules["__main__"] = main_module
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    exec(code, vars(main_module))  # noqa: S102 - the purpose of a driver
