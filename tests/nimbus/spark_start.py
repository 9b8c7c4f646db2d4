"""Options of Spark in tests marked `spark`, for a JVM that runs only for seconds.

The JVM compiles only with C1, and reads its classes from an archive, which the first such test makes in
`build/`. A small job takes 5 s of processor time instead of 18.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nimbus.java import JavaMissingError, find_java

HOME = Path(__file__).parents[2] / "build" / "spark-start"
QUIET = "-Xlog:cds=error -Xlog:cds+dynamic=error"
"""Suppresses warnings about classes that cannot be archived, and about an archive that does not fit."""
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
_DEADLINE_S = 600.0


@cache
def environment() -> Mapping[str, str]:
    """Environment variables for processes whose children may start Spark."""
    try:
        archive = _archive()
    except (JavaMissingError, OSError, subprocess.SubprocessError):
        return {"SPARK_SUBMIT_OPTS": QUICK_JVM}  # Spark starts more slowly, or not at all
    return {"SPARK_SUBMIT_OPTS": f"{QUICK_JVM} -XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}"}


def _archive() -> Path:
    home = find_java().java_home
    around = {**os.environ, "JAVA_HOME": str(home)}
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes may run tests at the same time
        place = HOME / f"{_key(home)}.jsa"
        if place.exists():
            return place
        for old in HOME.glob("*.jsa"):  # of another Java or Spark
            old.unlink()
        with tempfile.TemporaryDirectory(dir=HOME) as scratch:
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
            return part.replace(place)


def _key(java_home: Path) -> str:
    """Identifies Java and Spark's jars."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pyspark is not installed")
    java = (java_home / "bin" / "java").resolve()
    jars = Path(spec.origin).with_name("jars")
    found = [(str(path), path.stat().st_mtime_ns) for path in (java, *sorted(jars.iterdir()))]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]
