"""Delays by visibility, precipitation and wind at the hour of departure."""

from flightlib.buckets import UNKNOWN, WEATHER
from flightlib.tables import read_table, write_table
from flightlib.tasklog import start_log
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programmer expects

from nimbus.task import context


def factor(column: str) -> Column:
    """One measurement's name and bucket; a flight without weather is in the bucket `unknown`."""
    bucket = F.coalesce(F.col(f"{column}_bucket"), F.lit(UNKNOWN))
    return F.struct(F.lit(column).alias("factor"), bucket.alias("bucket"))


def main() -> None:
    log = start_log()
    ctx = context()
    spark = SparkSession.builder.getOrCreate()
    flights = read_table(spark, ctx, "enrich")
    # Each flight counts once for every factor, in a single pass.
    tagged = flights.select(
        F.explode(F.array(*(factor(column) for column in WEATHER))).alias("of"),
        "cancelled",
        "dep_delay",
        "arr_delay",
    )
    by_weather = (
        tagged.groupBy("of.factor", "of.bucket")
        .agg(
            F.count("*").alias("flights"),
            F.count_if("cancelled").alias("cancelled"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_dep_delay"),
            F.avg("arr_delay").alias("mean_arr_delay"),
        )
        .orderBy("factor", "bucket")
        .coalesce(1)
    )
    log.info("%s buckets", write_table(by_weather, ctx).count())


if __name__ == "__main__":
    main()
