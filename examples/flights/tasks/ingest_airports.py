"""Read the airports by their FAA code."""

from flightlib import schemas, sources
from flightlib.expectations import verify
from flightlib.tables import parse_csv, write_table
from flightlib.tasklog import start_log
from pyspark.sql import SparkSession

from nimbus.task import context

ROWS = 1_458
ALWAYS = {
    "a code has three characters": "length(faa) = 3",
    "an airport has a name": "name <> ''",
    "a place is on the globe": "lat BETWEEN -90 AND 90 AND lon BETWEEN -180 AND 180",
    "an altitude is between -100 and 15,000 feet": "alt BETWEEN -100 AND 15000",
}


def main() -> None:
    start_log()
    ctx = context()
    spark = SparkSession.builder.getOrCreate()
    raw = parse_csv(spark, sources.csv_rows("airports"), schemas.AIRPORTS)
    airports = raw.selectExpr("faa", "trim(name) AS name", "lat", "lon", "alt", "tzone")
    verify("airports", write_table(airports, ctx), rows=ROWS, unique=("faa",), always=ALWAYS)


if __name__ == "__main__":
    main()
