"""Reading and writing tables with Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

DATA = "data"
"""The folder below a task's output that holds its table; SQL tasks look for it there."""


def read_csv(spark: SparkSession, path: Path, schema: str) -> DataFrame:
    """Read a raw file; a row that does not fit the schema fails the task."""
    return spark.read.csv(str(path), schema=schema, header=True, nullValue="NA", mode="FAILFAST")


def read_table(spark: SparkSession, output: Path) -> DataFrame:
    """Read the table that a task left in its output folder."""
    return spark.read.parquet(str(output / DATA))


def write_table(table: DataFrame, output: Path) -> DataFrame:
    """Write a task's table and give back what was written, to be checked as it is on disk."""
    table.write.parquet(str(output / DATA))
    return read_table(table.sparkSession, output)
