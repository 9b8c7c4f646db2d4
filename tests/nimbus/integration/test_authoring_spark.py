"""Spark in `Pipeline.test`: each task has a session of its own, as in a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

SCRIPT = """\
import json
from nimbus.authoring import pipeline, task
from pyspark.sql import SparkSession

SHUFFLES, TRACKING = "spark.sql.shuffle.partitions", "spark.kryo.referenceTracking"

def told(ctx):
    spark = SparkSession.builder.getOrCreate()
    saw_view = spark.catalog.tableExists("seen")
    spark.range(3).createOrReplaceTempView("seen")
    tracking = spark.sparkContext.getConf().get(TRACKING, "unset")
    return {"saw_view": saw_view, "shuffles": spark.conf.get(SHUFFLES), "tracking": tracking}

first = task(name="first", type="pyspark", spark={"conf": {SHUFFLES: "3", TRACKING: "false"}})(told)
second = task(name="second", type="pyspark", needs=["first"])(told)
tested = pipeline("p", file=__file__, tasks=[first, second])

alone = tested.test().results
left = SparkSession.getActiveSession()
author = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
author.range(1).createOrReplaceTempView("seen")
beside = tested.test().results
same = SparkSession.builder.getOrCreate() is author
rows = author.table("seen").count()
print(json.dumps({"alone": alone, "left": left, "beside": beside, "same": same, "rows": rows}))
"""


def test_each_task_of_a_test_has_its_own_session_and_properties(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], check=True, capture_output=True, timeout=600
    )

    second = {"saw_view": False, "shuffles": "200", "tracking": "unset"}
    assert json.loads(done.stdout) == {
        "alone": {"first": {"saw_view": False, "shuffles": "3", "tracking": "false"}, "second": second},
        "left": None,
        "beside": {"first": {"saw_view": False, "shuffles": "3", "tracking": "unset"}, "second": second},
        "same": True,
        "rows": 1,
    }
