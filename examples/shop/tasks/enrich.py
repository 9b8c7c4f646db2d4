"""Give each order its product, customer and store. Fails if a join loses or repeats an order."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from nimbus.task import context


def main() -> None:
    task = context()
    spark = SparkSession.builder.getOrCreate()
    tables = {
        name: spark.read.parquet(str(task.inputs[name] / "data"))
        for name in task.inputs
        if name != "products"
    }
    products = spark.read.csv(str(task.inputs["products"]), schema="product int, category string, cents long")
    joined = (
        tables["orders"]
        .join(sql.broadcast(products), "product")
        .join(sql.broadcast(tables["customers"]), "customer")
        .join(sql.broadcast(tables["stores"]), "store")
        .withColumn("cents", sql.col("cents") * sql.col("pieces"))
    )
    joined.write.parquet(str(task.output / "data"))
    written = spark.read.parquet(str(task.output / "data"))
    if (found := written.count()) != task.parameters["orders"]:
        raise ValueError(f"{found} orders were joined, not {task.parameters['orders']}")


if __name__ == "__main__":
    main()
