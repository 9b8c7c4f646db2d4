"""Read the hourly weather of New York's airports, and find the bucket of each measurement."""

from flightlib import buckets, schemas, sources
from flightlib.expectations import verify
from flightlib.tables import parse_csv, write_table
from flightlib.tasklog import start_log
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programmer expects

from nimbus.task import TaskContext, context

ROWS = 26_115
HURRICANE_MPH = 200.0
"""Faster wind is wrong: one row has 1,048 miles an hour. That value is dropped, and its hour is kept."""
ALWAYS = {
    "weather is measured at one of New York's three airports": "origin IN ('EWR', 'JFK', 'LGA')",
    "the temperature is between -30 and 120 degrees Fahrenheit": "temp IS NULL OR temp BETWEEN -30 AND 120",
    "the wind is slower than 200 miles an hour": "wind_speed IS NULL OR wind_speed BETWEEN 0 AND 200",
    "precipitation is between 0 and 5 inches": "precip BETWEEN 0 AND 5",
    "visibility is between 0 and 10 miles": "visib BETWEEN 0 AND 10",
}


class FlakyWeatherError(RuntimeError):
    """The failure that the parameter `flaky` causes."""


def fail_if_asked(ctx: TaskContext) -> None:
    """Fail the first attempt if `flaky` is set, to show a retry."""
    if ctx.parameters["flaky"] and ctx.attempt == 1:
        raise FlakyWeatherError("the parameter flaky is set: attempt 1 fails, attempt 2 will go through")


def main() -> None:
    start_log()
    ctx = context()
    fail_if_asked(ctx)
    spark = SparkSession.builder.getOrCreate()
    raw = parse_csv(spark, sources.csv_rows("weather"), schemas.WEATHER)
    cleaned = raw.withColumn("wind_speed", F.when(F.col("wind_speed") < HURRICANE_MPH, F.col("wind_speed")))
    # Runs in Spark's Python workers, which find flightlib through the pipeline's python_path.
    named = {f"{column}_bucket": F.udf(kind.label)(column) for column, kind in buckets.WEATHER.items()}
    weather = cleaned.withColumns(named).drop("year", "month", "day", "hour")
    verify(
        "weather",
        write_table(weather, ctx),
        rows=ROWS,
        unique=("origin", "time_hour"),
        always=ALWAYS,
    )


if __name__ == "__main__":
    main()
