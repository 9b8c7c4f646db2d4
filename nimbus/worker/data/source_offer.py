"""Registers the data source `nimbus` with Spark when a task asks for that format first. Driver, main thread.

Not before: a registration makes Spark start its SQL engine, which a task may not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FORMAT = "nimbus"


def offer_source(*, connect: bool) -> None:
    """Let `spark.read.format("nimbus")` and `df.write.format("nimbus")` be known.

    Args:
        connect: The task's session is one of Spark Connect.
    """
    module = import_module("pyspark.sql.connect.readwriter" if connect else "pyspark.sql.readwriter")
    for kind in (module.DataFrameReader, module.DataFrameWriter):
        kind.format = _registering(kind.format, connect=connect)


def _registering(format_of: Any, *, connect: bool) -> Any:
    def format_and_register(of: Any, source: str) -> Any:
        if source == _FORMAT:
            from pyspark.sql import SparkSession

            from nimbus.worker.data.source import register

            # A driver has one session on a Connect server, and perhaps several of its own.
            register(SparkSession.builder.getOrCreate() if connect else of._spark)
        return format_of(of, source)

    return format_and_register
