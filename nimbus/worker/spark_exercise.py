"""A small warm-up job with features of most tasks: a shuffle, a file written and read, a query."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def exercise(session: Any, scratch: Path) -> None:
    """Run it. Only the classes that the JVM has loaded and compiled remain."""
    place = str(scratch / "exercise")
    grouped = session.range(1000).selectExpr("id % 7 AS k", "id").groupBy("k").sum("id")
    grouped.write.mode("overwrite").parquet(place)
    session.read.parquet(place).createOrReplaceTempView("nimbus_exercise")
    session.sql("SELECT k, count(*) AS n FROM nimbus_exercise GROUP BY k ORDER BY k").collect()
    session.catalog.dropTempView("nimbus_exercise")
    shutil.rmtree(place)
