"""One operation on a Spark Connect server, which runs a program there.

Each attempt gives the program another name, because Spark does not promise that it ends with its operation.
"""

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from journal import live
from pyspark.sql import SparkSession

from nimbus.task import context


def main() -> None:
    ctx = context()
    journal, seconds = sys.argv[1], float(sys.argv[2]) * float(sys.argv[3])
    name = f"{ctx.run_id}.program-of-{ctx.attempt}.{ctx.attempt}"
    program = str(Path(__file__).with_name("journal.py"))
    command = shlex.join([sys.executable, program, journal, name, str(seconds)])
    query = f"SELECT TRANSFORM(id) USING '{command}' AS (told) FROM range(0, 1, 1, 1)"
    spark = SparkSession.builder.getOrCreate()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(lambda: spark.sql(query).collect())
        live(journal, f"{ctx.run_id}.{ctx.task}.{ctx.attempt}", lambda: not answer.done())
    assert [row.told for row in answer.result()] == ["worked"]


if __name__ == "__main__":
    main()
