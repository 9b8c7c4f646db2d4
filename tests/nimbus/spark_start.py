"""Options of Spark in tests marked `spark`, for a JVM that runs only for seconds.

The JVM compiles only with C1, and reads its classes from an archive, which the first such test makes in
`build/`. A small job takes 5 s of processor time instead of 18.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nimbus.java import JavaMissingError, find_java
from nimbus.worker.class_archive import FOLDER, QUIET, NoSparkError, archive_key, archive_name, find_archive

HOME = Path(__file__).parents[2] / "build" / "spark-start"
"""Workers may use it as `class_archive_dir`."""

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for seconds."""
_MAKE = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").getOrCreate()
session.range(1000).selectExpr("id % 7 AS k", "id").groupBy("k").count().write.parquet(sys.argv[1] + "/table")
session.read.parquet(sys.argv[1] + "/table").collect()
session.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()  # the JVM ends, and writes the archive
gateway.proc.wait()
"""
"""Not `class_archive_maker`, because that runs at the lowest priority, and tests wait for this one."""
_DEADLINE_S = 600.0


@cache
def environment() -> Mapping[str, str]:
    """Environment variables for processes whose children may start Spark."""
    found = {"SPARK_SUBMIT_OPTS": QUICK_JVM, "NIMBUS__WORKER__CLASS_ARCHIVE": "false"}
    try:
        archive = _archive()
    except (JavaMissingError, NoSparkError, OSError, subprocess.SubprocessError):
        return found  # Spark starts more slowly, or not at all
    return found | {"SPARK_SUBMIT_OPTS": f"{QUICK_JVM} -XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}"}


def _archive() -> Path:
    around = {**os.environ, "JAVA_HOME": str(find_java().java_home)}
    folder = HOME / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes may run tests at the same time
        if (known := find_archive(HOME, around)) is not None:
            return known
        for old in folder.glob("*.jsa"):  # of another Java or Spark
            old.unlink()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            part = Path(scratch, "archive.jsa")
            subprocess.run(
                [sys.executable, "-c", _MAKE, scratch],
                env=around | {"SPARK_SUBMIT_OPTS": f"{QUICK_JVM} -XX:ArchiveClassesAtExit={part} {QUIET}"},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DEADLINE_S,
                check=True,
            )
            return part.replace(folder / archive_name(archive_key(around), part.stat().st_size))
