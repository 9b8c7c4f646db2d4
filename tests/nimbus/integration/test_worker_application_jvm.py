"""Properties that name the release, in the JVM of a driver in a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nimbus.worker.application.late_conf import without_late
from nimbus.worker.driver.programs import installed_spark
from tests.nimbus import spark_start
from tests.nimbus.java_source import needs_javac, numbers_jar
from tests.thorough import thorough

CONF = {
    "spark.plain": "1",
    "spark.of.release": "{{ release_root }}/notes",
    "spark.jars": "hdfs:///of/operator.jar,{{ release_root }}/lib/numbers.jar",
}
DRIVER = """
import json, sys
from pathlib import Path
from nimbus.worker.application.late_conf import set_late

set_late(Path(sys.argv[1]), sys.argv[2] + "#sent")
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
conf = spark.sparkContext.getConf()
spark.sql("CREATE TEMPORARY VIEW numbers USING example.Numbers")
rows = [tuple(row) for row in spark.sql("SELECT id, told FROM numbers ORDER BY id").collect()]
names = ("spark.plain", "spark.of.release", "spark.jars", "spark.archives")
print(json.dumps({"rows": rows, **{name: conf.get(name) for name in names}}))
"""


def test_submission_lacks_what_names_the_release() -> None:
    assert without_late(CONF) == {"spark.plain": "1", "spark.jars": "hdfs:///of/operator.jar"}
    assert without_late({"spark.jars": "{{release_root}}/a.jar", "spark.a": ""}) == {"spark.a": ""}


@needs_javac
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("master", ["local[1]", pytest.param("local-cluster[1,1,512]", marks=thorough)])
def test_driver_in_a_cluster_gets_properties_and_jars_of_its_release(
    tmp_path: Path, java_home: Path, master: str
) -> None:
    """As a standalone cluster starts it: `spark-submit` in client mode, with a Python file."""
    release = tmp_path / "release"
    (release / "lib").mkdir(parents=True)
    numbers_jar(release / "lib" / "numbers.jar", "of the release")
    (archive := tmp_path / "sent.tar").write_bytes(b"\0" * 10240)
    conf = CONF | {"spark.jars": "{{ release_root }}/lib/numbers.jar"}
    plan = {"release_root": str(release), "task_conf": conf}
    (tmp_path / "driver.json").write_text(json.dumps(plan))
    (tmp_path / "main.py").write_text(DRIVER)
    options = ["--conf", "spark.plain=1", "--conf", f"spark.archives={archive}#first"]

    done = subprocess.run(
        [
            *(f"{installed_spark()}/bin/spark-submit", "--master", master),
            *("--conf", "spark.executor.memory=512m", *options),
            *(str(tmp_path / "main.py"), str(tmp_path), str(archive)),
        ],
        env={
            "JAVA_HOME": str(java_home),
            "PATH": "/usr/bin:/bin",
            "SPARK_HOME": installed_spark(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            **spark_start.environment(),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "rows": [[0, "of the release"], [1, "of the release"]],
        "spark.plain": "1",
        "spark.of.release": f"{release}/notes",
        "spark.jars": f"{release}/lib/numbers.jar",
        "spark.archives": f"{archive}#sent,{archive.as_uri()}#first",
    }
