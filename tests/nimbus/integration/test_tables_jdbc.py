"""What `docs/tables-and-jars.md` says about JDBC, with a real PostgreSQL: Debian's packages `postgresql` and
`libpostgresql-jdbc-java`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.launcher import launch
from tests.nimbus.integration.test_worker_spark import said_by_events
from tests.nimbus.postgres import PASSWORD, Database, needs_postgres, running_postgres
from tests.nimbus.worker_bench import Bench

JAR = Path("/usr/share/java/postgresql.jar")
PAGE = Path(__file__).parents[3] / "docs" / "tables-and-jars.md"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,
    pytest.mark.usefixtures("java_home"),
    pytest.mark.timeout(900),
    needs_postgres,
    pytest.mark.skipif(not JAR.exists(), reason="there is no JDBC driver for PostgreSQL"),
]


@pytest.fixture
def database() -> Iterator[Database]:
    with running_postgres() as found:
        yield found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    (made.release / "jars").mkdir()
    shutil.copy(JAR, made.release / "jars" / "postgresql.jar")
    yield made
    made.close()


def block(kind: str, containing: str) -> str:
    """The example of the page."""
    found = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (one,) = (text for text in found if containing in text)
    return str(one)


def run(bench: Bench, script: str, database: Database, kind: TaskKind, **more: Any) -> list[dict[str, Any]]:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    attempt = f"run1.{kind.value}.1"
    events, conf = {"spark.eventLog.enabled": "true"}, dict[str, str]()
    for name, value in re.findall(r"^ +(spark\.sql\.catalog\.\S+): \"?(.*?)\"?$", PAGE.read_text(), re.M):
        if name.startswith("spark.sql.catalog.pg"):
            conf[name] = value.replace("{{ vars.warehouse }}", database.url)
    assert len(conf) == 5, conf
    conf = events | (conf if kind is TaskKind.SQL else {})
    order = bench.order(script, attempt=attempt, task_kind=kind, spark_conf=conf, **more)
    folder = bench.folder(attempt)
    folder.create(order)
    launch(folder, bench.startup(jars=("jars/postgresql.jar",), secrets={"DB_PASSWORD": PASSWORD}))
    assert bench.await_end(attempt, 300).outcome is Outcome.SUCCEEDED, folder.log.read_text()
    told = said_by_events(folder.work)
    assert ("spark.sql.catalog.pg.password" in told) == (kind is TaskKind.SQL)
    assert PASSWORD not in told
    assert not bench.files_with(PASSWORD)
    return list(pq.read_table(bench.data / order.output / "data").to_pylist())


def test_examples_of_the_page_read_and_write_a_real_database(bench: Bench, database: Database) -> None:
    database.ask("CREATE TABLE orders (id bigint, day text, amount bigint)")
    database.ask("INSERT INTO orders VALUES (1, '2026-01-01', 5), (2, '2026-01-01', 6), (3, '2026-01-02', 7)")
    database.ask("CREATE TABLE sums (day text, total bigint)")

    sql = bench.script("sums.sql", block("sql", "pg.public.sums"))
    rows = run(bench, sql, database, TaskKind.SQL, parameters={"day": "2026-01-01"})

    assert database.ask("SELECT * FROM sums") == "2026-01-01|11"
    assert rows == [{"day": "2026-01-01", "total": 11}]

    code = bench.script("load.py", block("python", "jdbc"))
    rows = run(bench, code, database, TaskKind.PYSPARK, variables={"warehouse": database.url})
    assert [row["id"] for row in rows] == [1, 2, 3]
