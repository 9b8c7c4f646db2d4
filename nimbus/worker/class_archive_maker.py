"""Creates a class-data archive if none exists: `python -I -m nimbus.worker.class_archive_maker FOLDER KEY`.

Runs a small Spark job in the environment of drivers, at the lowest priority; its JVM archives the classes
that it loaded. The program, with all processes that it started, ends when its standard input closes: with its
worker.
Threads: main, and `class-archive-worker`, which waits for that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from nimbus.worker.class_archive import QUIET, archive_name, whole_archive
from nimbus.worker.environment import spark_settings, submit_arguments

_LONGEST_S = 1800
"""Time limit in seconds; it takes 25 s on an idle machine."""
_EXIT_S = 900.0
_PARTS = "making-"
_KEPT = 3
"""Archives that are kept: workers that share a folder may have several Javas and Sparks."""


def main(arguments: Sequence[str]) -> int:
    """Create the archive, and remove the oldest archives of other Javas and Sparks."""
    folder, key = Path(arguments[0]), arguments[1]
    signal.alarm(_LONGEST_S)
    threading.Thread(target=_end_with_worker, name="class-archive-worker", daemon=True).start()
    _lower_priority()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be making it
        return _make(folder, key)


def _make(folder: Path, key: str) -> int:
    if whole_archive(folder, key) is not None:
        return 0
    for cut_off in folder.glob(archive_name(key, "*")):
        cut_off.unlink()
    for left in folder.glob(f"{_PARTS}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_PARTS) as scratch:
        part = Path(scratch, "archive.jsa")
        _run_spark(Path(scratch), part)
        place = folder / archive_name(key, part.stat().st_size)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(place)
    for other in sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
        other.unlink(missing_ok=True)
    return 0


def _lower_priority() -> None:
    os.nice(19)
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def _end_with_worker() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def _run_spark(scratch: Path, archive: Path) -> None:
    conf = spark_settings(
        application="nimbus-class-archive",
        master="local[2]",
        worker_conf={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive} {QUIET}"},
        task_conf={},
        temporary=scratch,
    )
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments("local[2]", conf)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from nimbus.worker.spark_exercise import exercise

    session = SparkSession.builder.getOrCreate()
    exercise(session, scratch)
    session.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends, and writes the archive
    gateway.proc.wait(_EXIT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
