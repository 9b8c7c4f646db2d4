"""Add up the orders of each customer, with Spark."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from nimbus.task import context


def main() -> None:
    task = context()
    spark = SparkSession.builder.getOrCreate()
    orders = spark.read.csv(
        str(task.inputs["orders"]), header=True, schema="day date, customer string, cents long"
    )
    totals = orders.groupBy("customer").agg(sql.count("*").alias("orders"), sql.sum("cents").alias("cents"))
    totals.write.parquet(str(task.output / "totals"))
    totals.orderBy("customer").show()


if __name__ == "__main__":
    main()
