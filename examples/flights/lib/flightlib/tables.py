"""Reading and writing tables with Spark, wherever outputs are kept and Spark's executors are.

Executors may be on other hosts than the driver. So the driver reads raw files, and tables in a bucket go
through the format `nimbus`; Spark's own, which is faster, is for files that all executors see.
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
    if _sees_local_files(spark, ctx):
        return spark.read.parquet(str(ctx.inputs[task] / DATA))
    return spark.read.format("nimbus").load(ctx.input_uri(task, DATA))


def write_table(table: DataFrame, ctx: TaskContext) -> DataFrame:
    """Write the task's table and give back what was written, to be checked as it is stored."""
    spark = table.sparkSession
    local = _sees_local_files(spark, ctx)
    kind, place = ("parquet", str(ctx.output / DATA)) if local else ("nimbus", f"{ctx.output_uri}/{DATA}")
    table.write.format(kind).mode("append").save(place)
    return spark.read.format(kind).load(place)


def _sees_local_files(spark: SparkSession, ctx: TaskContext) -> bool:
    """Executors are on the driver's host, or outputs are in a folder that all hosts share."""
    return str(spark.conf.get("spark.master")).startswith("local") or ctx.output_uri.startswith("file:")
