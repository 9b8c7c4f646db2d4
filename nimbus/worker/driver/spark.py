"""Changes the stop of a driver's Spark: its cost is written, and its output is checked. Main thread.

Executors must have written to the output folder that the driver sees. A write by path leaves its marks on
this host, wherever its data are (`nimbus.worker.data.folder_checks`). An empty partitioned table has marks
alone, too, and files of other executors may hide a loss. So before a SparkContext stops, its executors read a
file of the output, as many Spark tasks as reach each of them.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped, unused-ignore]
from pyspark import SparkContext

from nimbus.domain.errors import NimbusError
from nimbus.worker.data.folder_checks import FolderState, spark_write_in, state_of
from nimbus.worker.driver.spark_figures import CostBook

_TASKS_FOR_EACH_CORE = 2
_MAX_TASKS = 2_000
_PATIENCE_S = 120
"""For executors, which may have been released, and for their answer."""


class OutputNotSharedError(NimbusError):
    """Executors wrote to their own disks, or it cannot be excluded."""

    code = "output_not_shared"

    def __init__(self, written: Path, why: str) -> None:
        super().__init__(
            f"Spark has written to {written}, but {why}: what executors on other hosts wrote there is lost. "
            "Write it with .format('nimbus') below ctx.output_uri (docs/tasks.md, Tables for Spark on "
            "several hosts), or mount worker.data at the same path on all hosts of the executors"
        )


def change_stop(cost: Path) -> None:
    """Let `spark.stop()` write what Spark did, and not wait for the server of accumulators: it takes 1 s."""
    stop, book = SparkContext.stop, CostBook(cost)

    def stop_jvm(context: Any) -> None:
        book.add(context)
        server, context._accumulatorServer = getattr(context, "_accumulatorServer", None), None
        stop(context)
        if server is not None:  # it polls once a second
            threading.Thread(target=server.shutdown, name="driver-accumulators", daemon=True).start()

    SparkContext.stop = stop_jvm  # type: ignore[assignment, method-assign]


def stop_spark() -> None:
    """Stop a session that the task left open; otherwise its files would be incomplete."""
    context = SparkContext._active_spark_context  # there is no public way to ask without creating one
    if context is not None:
        try:
            context.stop()
        except (Py4JError, OSError) as exc:  # the JVM has died; the task's own error says more
            sys.stderr.write(f"Spark could not be stopped: {exc}\n")


def watch_output(output: Path) -> Callable[[], None]:
    """Check the output before a SparkContext stops; the result, called later, raises OutputNotSharedError."""
    failed: list[OutputNotSharedError] = []
    before, stop = state_of(output), SparkContext.stop

    def checked_stop(context: SparkContext) -> None:
        java: Any = getattr(context, "_jsc", None)  # None: it is stopped, or was not started
        if java is not None and not str(context.master).startswith("local"):
            try:
                _check(context, java, output, before)
            except OutputNotSharedError as exc:
                failed.append(exc)
        stop(context)

    def raise_failed() -> None:
        if failed:
            raise failed[0]

    setattr(SparkContext, "stop", checked_stop)  # noqa: B010 - mypy forbids a plain assignment
    return raise_failed


def _check(context: SparkContext, java: Any, output: Path, before: FolderState) -> None:
    written = spark_write_in(output, before)
    if written is None:
        return
    # Neither `.` nor `_` first: Spark does not read such files.
    with tempfile.NamedTemporaryFile(dir=output, prefix="nimbus-probe-") as probe:
        Path(probe.name).chmod(0o644)
        try:
            tasks = min(_TASKS_FOR_EACH_CORE * context.defaultParallelism, _MAX_TASKS)
            probe.write(b"1\n" * tasks)
            probe.flush()
            counting = java.textFile(f"file://{_as_glob(probe.name)}", tasks).countAsync()
            jvm: Any = context._jvm
            if counting.get(_PATIENCE_S, jvm.java.util.concurrent.TimeUnit.SECONDS) == tasks:
                return
            why = "executors see an older state of that folder"
        except (Py4JError, OSError) as exc:
            unseen = Path(probe.name).name in str(exc)
            why = "executors do not see that folder" if unseen else f"executors could not be asked: {exc}"
    raise OutputNotSharedError(written, why)


def _as_glob(path: str) -> str:
    """A path as Hadoop's pattern for it alone."""
    return re.sub(r"[*?\[\]{}\\,]", r"{\\\g<0>}", path)
