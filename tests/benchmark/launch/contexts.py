"""Runs attempts of a Spark task one after the other in kept JVMs, and prints what each JVM has grown to.

`python -m tests.benchmark.launch.contexts --attempts 200`. Memory, threads and open files are those of the
attempt's JVM, before the attempt ends. Processor time is that of the driver and of the JVM since the attempt
before; in the first attempt of a JVM since its start.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.jvm.launcher import JvmLauncher
from nimbus.worker.launcher import ForkLauncher
from tests.nimbus.worker_bench import Bench, eventually

TASK = """
import os, time
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
frame = spark.range(1000).withColumn("n", udf(lambda n: n + 1, "long")("id"))
frame.groupBy("n").count().write.parquet("out")
assert spark.read.parquet("out").count() == 1000
java = spark._jvm.java.lang.ProcessHandle.current().pid()
status = dict(line.split(":", 1) for line in open(f"/proc/{java}/status").read().splitlines())
fields = open(f"/proc/{java}/stat").read().rpartition(")")[2].split()
java_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
files = len(os.listdir(f"/proc/{java}/fd"))
mib = int(status["VmRSS"].split()[0]) >> 10
print("found:", java, mib, int(status["Threads"]), files, java_s, time.process_time(), flush=True)
"""
_FOUND = re.compile(r"^found: (\S+) (\S+) (\S+) (\S+) (\S+) (\S+)$", re.MULTILINE)
_SHOWN = {1, 2, 10, 49, 50, 51}
_PATIENCE_S = 600.0


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.launch.contexts", description=__doc__)
    parser.add_argument("--attempts", type=int, default=200)
    options = parser.parse_args(words)
    place = Path(tempfile.mkdtemp(prefix="nimbus-bench-contexts-"))
    jvms = JvmLauncher(ForkLauncher(), place / "w1", limit=1)
    bench = Bench(place, jvms)
    jvms.start()
    sys.stdout.write("attempt  JVM  RSS, MiB  threads  open files  CPU of driver and JVM, s\n")
    seen: list[str] = []
    before_s = 0.0
    try:
        for number in range(1, options.attempts + 1):
            java, mib, threads, files, java_s, driver_s = _ran(bench, f"run1.task{number}.1")
            if java not in seen:
                seen.append(java)
                before_s = 0.0
            cpu_s = float(java_s) - before_s + float(driver_s)
            before_s = float(java_s)
            if number in _SHOWN or number % 50 in {0, 1}:
                row = f"{number:7}  {len(seen):3}  {mib:>8}  {threads:>7}  {files:>10}  {cpu_s:24.2f}\n"
                sys.stdout.write(row)
                sys.stdout.flush()
    finally:
        jvms.close()
        bench.close()
        shutil.rmtree(place, ignore_errors=True)
    return 0


def _ran(bench: Bench, attempt: str) -> tuple[str, ...]:
    """Run an attempt; return what its code has found."""
    order = bench.order(bench.script("task.py", TASK), attempt=attempt, task_kind=TaskKind.PYSPARK)
    folder = bench.folder(attempt)
    folder.create(order)
    bench.launch(folder, bench.startup())
    end = bench.await_end(attempt, _PATIENCE_S)
    eventually(lambda: folder.is_delivered, "delivery")
    log = folder.log.read_text()
    assert end.outcome is Outcome.SUCCEEDED, (end.reason, log)
    found = _FOUND.search(log)
    assert found is not None, log
    return found.groups()


if __name__ == "__main__":
    sys.exit(main())
