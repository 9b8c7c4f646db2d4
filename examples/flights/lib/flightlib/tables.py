"""Reading and writing tables with Spark, wherever outputs are kept and Spark's executors are.

Executors may be on other hosts than the driver: so the driver reads raw files, and tables of other tasks are
read through the format `nimbus`, never by a local path.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programmer expects

from nimbus.task import TaskContext

DATA = "data"
"""The folder below a task's output that holds its table; SQL tasks look for it there."""


def parse_csv(spark: SparkSession, lines: Sequence[str], schema: str) -> DataFrame:
    """Make a table of the rows of a CSV file; a row that does not fit the schema fails the task."""
    text = spark.createDataFrame(pa.table({"line": pa.array(lines, pa.string())}))
    row = F.from_csv("line", schema, {"mode": "FAILFAST", "nullValue": "NA"})
    return text.select(row.alias("row")).select("row.*")


def read_table(spark: SparkSession, ctx: TaskContext, task: str) -> DataFrame:
    """Read the table that a needed task left."""
    return spark.read.format("nimbus").load(ctx.input_uri(task, DATA))


def write_table(table: DataFrame, ctx: TaskContext) -> DataFrame:
    """Write the task's table and give back what was written, to be checked as it is stored."""
    place = f"{ctx.output_uri}/{DATA}"
    table.write.format("nimbus").mode("append").save(place)
    return table.sparkSession.read.format("nimbus").load(place)
