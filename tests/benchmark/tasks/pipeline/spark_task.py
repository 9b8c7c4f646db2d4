"""A tiny Spark task: `spark_task.py FILE SECONDS [PARQUET]`. Its code starts when its session is ready."""

import json
import os
import sys
import time

from pyspark.sql import SparkSession

file, seconds = sys.argv[1], float(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
started_ns = time.time_ns()
with open(os.environ["NIMBUS_CONTEXT"]) as document:  # noqa: PTH123 - pathlib is not cheap
    context = json.load(document)
own = f"{os.getpid()} {context['run_id']} {context['task']} {context['attempt']}\n"
marks = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(marks, f"start {started_ns} {own}".encode())
assert spark.range(100).count() == 100
if sys.argv[3:]:
    spark.range(100).write.parquet(f"{sys.argv[3]}/{context['run_id']}/{context['task']}")
time.sleep(seconds)
os.write(marks, f"end {time.time_ns()} {own}".encode())
