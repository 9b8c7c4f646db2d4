"""Delays and matches by carrier. Counts are additive, so the report's totals come from here too."""

import argparse

from flightlib import schemas, sources
from flightlib.tables import parse_csv, read_table, write_table
from flightlib.tasklog import start_log
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programmer expects

from nimbus.task import context


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--late-minutes", type=int, required=True)
    late = options.parse_args().late_minutes
    log = start_log()
    ctx = context()
    spark = SparkSession.builder.getOrCreate()
    names = parse_csv(spark, sources.csv_rows("airlines"), schemas.AIRLINES)
    by_carrier = (
        read_table(spark, ctx, "enrich")
        .groupBy("carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count_if("cancelled").alias("cancelled"),
            F.count("dep_delay").alias("departed"),
            F.count_if(F.col("dep_delay") >= late).alias("late"),
            F.avg("dep_delay").alias("mean_dep_delay"),
            F.avg("arr_delay").alias("mean_arr_delay"),
            F.count_if("with_weather").alias("with_weather"),
            F.count_if("with_plane").alias("with_plane"),
            F.count_if("with_destination").alias("with_destination"),
        )
        .join(F.broadcast(names), ["carrier"], "left")
        .fillna("(name unknown)", ["name"])
        .orderBy("carrier")
        .coalesce(1)
    )
    log.info("%s carriers", write_table(by_carrier, ctx).count())


if __name__ == "__main__":
    main()
