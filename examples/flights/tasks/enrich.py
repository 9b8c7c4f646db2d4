"""Give each flight the weather at its departure, its plane and its destination."""

from flightlib.expectations import verify
from flightlib.tables import read_table, write_table
from flightlib.tasklog import start_log
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programmer expects

from nimbus.task import context

KEY = ("carrier", "flight", "origin", "month", "day", "hour", "minute")
ALWAYS = {
    "a weather match has its buckets": "NOT with_weather OR visib_bucket IS NOT NULL",
    "a match says so": "with_weather IS NOT NULL AND with_plane IS NOT NULL AND with_destination IS NOT NULL",
}


def main() -> None:
    log = start_log()
    ctx = context()
    spark = SparkSession.builder.getOrCreate()
    tables = {task: read_table(spark, ctx, task) for task in ctx.inputs}
    flights = tables["ingest_flights"]
    weather = tables["ingest_weather"].withColumn("with_weather", F.lit(True))
    planes = tables["ingest_planes"].withColumn("with_plane", F.lit(True))
    airports = tables["ingest_airports"].selectExpr(
        "faa AS dest", "name AS dest_name", "lat AS dest_lat", "lon AS dest_lon", "true AS with_destination"
    )
    joined = (
        flights.join(F.broadcast(weather), ["origin", "time_hour"], "left")
        .join(F.broadcast(planes), ["tailnum"], "left")
        .join(F.broadcast(airports), ["dest"], "left")
        .fillna(False, ["with_weather", "with_plane", "with_destination"])
    )
    written = write_table(joined, ctx)
    # As many rows as flights: no join has lost or duplicated one.
    verify("enriched flights", written, rows=flights.count(), unique=KEY, always=ALWAYS)
    log.info("columns: %s", ", ".join(written.columns))


if __name__ == "__main__":
    main()
