"""Registers the data source `nimbus` when a task first uses that format. Driver, main thread.

Not earlier, because registration makes Spark start its SQL engine, which a task may not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FORMAT = "nimbus"


def offer_source(*, connect: bool) -> None:
    """Make `spark.read.format("nimbus")` and `df.write.format("nimbus")` register the source."""
    module = import_module("pyspark.sql.connect.readwriter" if connect else "pyspark.sql.readwriter")
    for kind in (module.DataFrameReader, module.DataFrameWriter):
        kind.format = _registering(kind.format, connect=connect)


def _registering(format_of: Any, *, connect: bool) -> Any:
    def format_and_register(of: Any, source: str) -> Any:
        if source == _FORMAT:
            import pyspark
            from pyspark.sql import SparkSession

            if pyspark.__version__.startswith("3."):
                raise NotImplementedError(
                    f"the format nimbus needs Spark 4.0 or newer, and this is {pyspark.__version__}: use "
                    "paths below context().inputs and context().output"
                )

            from nimbus.worker.data.source import register

            # A driver has one session on a Connect server, but may have several of its own Spark.
            register(SparkSession.builder.getOrCreate() if connect else of._spark)
            # Spark refuses partition columns of a source in Python before it is asked; options reach it.
            of.partitionBy = lambda *columns: of.option("partitionBy", ",".join(columns))
        return format_of(of, source)

    return format_and_register
