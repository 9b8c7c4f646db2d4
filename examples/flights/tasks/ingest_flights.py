"""Read the flights of the requested months."""

import argparse

from flightlib import schemas, sources
from flightlib.expectations import verify
from flightlib.tables import parse_csv, write_table
from flightlib.tasklog import start_log
from pyspark.sql import SparkSession

from nimbus.task import context

KEY = ("carrier", "flight", "origin", "month", "day", "hour", "minute")
ALWAYS = {
    "a flight leaves from one of New York's three airports": "origin IN ('EWR', 'JFK', 'LGA')",
    "a carrier has two characters": "length(carrier) = 2",
    "a destination has three letters": "dest RLIKE '^[A-Z]{3}$'",
    "a flight covers 1 to 5,000 miles": "distance BETWEEN 1 AND 5000",
    "a departure is at most an hour early and a day late": "cancelled OR dep_delay BETWEEN -60 AND 1440",
    "an arrival is at most two hours early and a day late": (
        "arr_delay IS NULL OR (NOT cancelled AND arr_delay BETWEEN -120 AND 1440)"
    ),
    "the hour is that of the time stamp in New York": (
        "hour(from_utc_timestamp(time_hour, 'America/New_York')) = hour"
    ),
}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--first-month", type=int, required=True)
    options.add_argument("--last-month", type=int, required=True)
    asked = options.parse_args()
    log = start_log()
    rows = sources.expected_flights(asked.first_month, asked.last_month)

    ctx = context()
    spark = SparkSession.builder.getOrCreate()
    raw = parse_csv(spark, sources.csv_rows("flights"), schemas.FLIGHTS)
    flights = raw.where(raw.month.between(asked.first_month, asked.last_month)).selectExpr(
        "month",
        "day",
        "hour",
        "minute",
        "time_hour",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "dep_delay",
        "arr_delay",
        "air_time",
        "distance",
        "dep_time IS NULL AS cancelled",
    )
    written = write_table(flights, ctx)
    verify("flights", written, rows=rows, unique=KEY, always=ALWAYS)
    log.info("cancelled: %s", f"{written.where('cancelled').count():,}")


if __name__ == "__main__":
    main()
