"""Tasks that are other programs: `shell` and `spark_submit` replace the driver, `spark_pipeline` runs in it.

A program that replaces the driver is watched, ended and limited like any driver, and its exit code is the
driver's. Spark's program `spark-pipelines` starts a Spark Connect server in the driver's own JVM, so it has
the driver's master, properties and folders, and ends with it. Its only progress report is a printed line for
each change of a flow. Main thread of the driver.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TextIO

from nimbus.domain.attempts import shebang
from nimbus.domain.runs.run_number import WriteVersionError
from nimbus.task import TaskContext, context
from nimbus.worker.driver.environment import submit_options

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
MAX_INPUTS = 1000
"""Limit of inputs in the environment, which Linux limits to 2 MB together with the arguments."""
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""Exit codes of shells for a program that cannot be started."""
_FLOW = re.compile(r": Flow '?(.{1,200}?)'? (?:is|has|has been) ([A-Z]+)\b")
_DONE = ("COMPLETED", "EXCLUDED", "IDLE", "SKIPPED", "STOPPED")
_NAMED = 50
"""Most flows that are named: progress is written to ZooKeeper repeatedly."""
_WAREHOUSE = "spark.sql.warehouse.dir"
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


def become(arguments: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Execute a program, searched in `PATH` unless it is a path; or exit like a shell if it cannot start."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - no shell
    except OSError as exc:
        sys.stderr.write(f"{arguments[0]}: {exc.strerror}{_cause(arguments[0])}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(exc, FileNotFoundError) else _NOT_EXECUTABLE)


def _cause(program: str) -> str:
    """Why a file could not be started, if its first line shows it."""
    try:
        with Path(program).open("rb") as file:
            head = file.read(shebang.HEAD_BYTES)
    except OSError:  # searched in PATH, or it does not exist
        return ""
    name = shebang.interpreter_of(head)
    missing = f"its interpreter {name} does not exist here" if name and not Path(name).exists() else None
    why = shebang.fault_of(head) or missing
    return f": {why}" if why else ""


def spark_submit(
    jar: Path, main_class: str, arguments: Sequence[str], *, master: str, conf: Mapping[str, str]
) -> list[str]:
    """The command that runs a jar. As for `pyspark`, `SPARK_HOME` overrides the installed package."""
    home = os.environ.get("SPARK_HOME") or installed_spark()
    program = Path(home, "bin", "spark-submit")
    options = submit_options(master, conf)
    return [str(program), *options, "--class", main_class, str(jar), *arguments]


def installed_spark() -> str:
    """The folder of the package `pyspark`, found without importing it."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("pyspark is not installed")
    return str(Path(package.origin).parent)


def variables(task: TaskContext) -> dict[str, str]:
    """The context of a task, as environment variables."""
    values = {
        "PIPELINE": task.pipeline,
        "RUN_ID": task.run_id,
        "TASK": task.task,
        "ATTEMPT_NUMBER": str(task.attempt),
        "FENCE_TOKEN": task.fence_token,
        "LOGICAL_DATE": task.logical_date.isoformat(),
        "TZ": task.tz,
        "OUTPUT": str(task.output),
        "RESULT": str(task.result_file),
        "CHECKPOINT": str(task.checkpoint_file),
        "LAST_CHECKPOINT": "" if task.last_checkpoint is None else json.dumps(task.last_checkpoint),
        "OUTPUT_URI": task.output_uri,
        "RELEASE_ROOT": str(task.release_root),
    }
    with suppress(WriteVersionError):
        values |= {"WRITE_KEY": task.write_key, "WRITE_VERSION": str(task.write_version)}
    if task.data_interval_start is not None and task.data_interval_end is not None:
        values["DATA_INTERVAL_START"] = task.data_interval_start.isoformat()
        values["DATA_INTERVAL_END"] = task.data_interval_end.isoformat()
    if len(task.inputs) <= MAX_INPUTS:
        values |= {f"INPUT_{name.replace('-', '_')}": str(folder) for name, folder in task.inputs.items()}
        values |= {f"INPUT_URI_{name.replace('-', '_')}": task.input_uri(name) for name in task.inputs}
    if task.pinned and len(task.read_inputs) <= MAX_INPUTS:
        paths = {
            name: [version.outside or str(version.path) for version in versions]
            for name, versions in task.reads.items()
        }
        values["READS"] = json.dumps(paths)
    values |= {f"PARAM_{name}": _text(value) for name, value in task.parameters.items()}
    return {f"NIMBUS_{name}": value for name, value in values.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class FlowBook(io.TextIOBase):
    """Replaces the program's standard output: passes it on, and records the last state of each flow."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._states: dict[str, str] = {}

    def write(self, text: str) -> int:
        """Pass text on; the program writes whole lines."""
        for flow, state in _FLOW.findall(text):
            self._states[flow] = state
        return self._out.write(text)

    def flush(self) -> None:
        """As of the underlying file."""
        self._out.flush()

    def figures(self) -> dict[str, Any]:
        """The progress of the flows, for display; empty if there are none yet. Any thread."""
        states = self._states.copy()
        if not states:
            return {}
        ended = list(states.values())
        return {
            "flows": dict(list(states.items())[:_NAMED]),
            "flows_total": len(states),
            "flows_done": sum(state in _DONE for state in ended),
            "flows_failed": ended.count("FAILED"),
        }


def settings_for(conf: Mapping[str, str], output: str) -> dict[str, str]:
    """Spark's settings for such a pipeline: tables are stored in the output, unless a warehouse is set."""
    return {
        _WAREHOUSE: output,
        **conf,
        # On loopback, with a free port, because several may run on this host.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }


def run_pipeline(spec: Path, arguments: Sequence[str], *, master: str, book: FlowBook) -> None:
    """Run the program to its end. `arguments`: `run` or `dry-run`, and what follows. Raises its errors."""
    from pyspark.pipelines import cli
    from pyspark.sql.connect.client import core

    os.environ |= {"SPARK_API_MODE": "connect", "MASTER": master, **variables(context())}
    channels: Any = core.DefaultChannelBuilder
    channels.default_port = staticmethod(_port_of_server)
    sys.argv = ["spark-pipelines", arguments[0], "--spec", str(spec), *arguments[1:]]
    with redirect_stdout(book):
        cli.main()


def _port_of_server() -> int:
    """Read the port that the server in the driver's JVM has chosen. Only PySpark's own tests do the same."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession._instantiatedSession
    jvm = session._jvm
    return int(getattr(getattr(jvm, _SERVICE), "MODULE$").localPort())
