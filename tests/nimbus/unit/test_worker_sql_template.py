"""Dates of a task: in the template of a SQL file, in the environment, in its context."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from nimbus.domain.data.publications import Version
from nimbus.domain.data.reads import input_names
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.run_number import next_number
from nimbus.task import CONTEXT_VARIABLE, TaskContext, context, fence_token
from nimbus.templates.checking import file_faults
from nimbus.worker.driver.files import context_document
from nimbus.worker.driver.programs import MAX_INPUTS, variables
from nimbus.worker.driver.sql_task import SqlTaskError, render_sql
from tests.nimbus.worker_bench import Bench

DAY, BEFORE = (datetime.fromisoformat(text) for text in ("2026-03-29T06:00+02:00", "2026-03-28T06:00+01:00"))
TASK = TaskContext(
    pipeline="p",
    release="a" * 64,
    run_id="p-1",
    task="t",
    attempt=1,
    logical_date=DAY,
    data_interval_start=BEFORE,
    data_interval_end=DAY,
    tz="Europe/Berlin",
    parameters={},
    inputs={},
    output=Path("out"),
    release_root=Path("release"),
    fence_token="000001",
)
WITHOUT = replace(TASK, data_interval_start=None, data_interval_end=None, tz="UTC")


@pytest.mark.parametrize(
    ("logical_date", "day"),
    [("2026-03-02T00:30:00+01:00", "2026-03-02"), ("2026-03-01T23:30:00Z", "2026-03-01")],
)
def test_dates_in_a_sql_file_are_the_local_day_of_the_logical_date(logical_date: str, day: str) -> None:
    task = replace(TASK, logical_date=datetime.fromisoformat(logical_date))

    rendered = render_sql("{{ ds }} {{ ds_nodash }} {{ run.logical_date.day }}", task, "t.sql")

    assert rendered == f"{day} {day.replace('-', '')} {int(day[-2:])}"


def test_sql_file_can_name_files_of_the_release() -> None:
    assert render_sql("csv.`{{ release_root }}/a.csv`", TASK, "t.sql") == "csv.`release/a.csv`"
    assert file_faults("csv.`{{ release_root }}/a.csv`", ()) == []


def test_sql_file_writes_booleans_as_the_environment_does() -> None:
    task = replace(TASK, parameters={"full": True})

    assert render_sql("{{ params.full }} {{ not params.full }}", task, "t.sql") == "true false"
    assert variables(task)["NIMBUS_PARAM_full"] == "true"


def test_sql_file_sees_the_interval_and_functions_on_dates() -> None:
    text = "{{ data_interval_start }} {{ data_interval_end }} {{ tz }} {{ days(logical_date, -1) }}"

    assert render_sql(text, TASK, "t.sql") == f"{BEFORE} {DAY} Europe/Berlin {BEFORE}"


def test_sql_file_that_names_an_interval_which_is_not_there_or_no_date_says_so() -> None:
    with pytest.raises(SqlTaskError, match=r"t\.sql: .*--data-interval FROM TO"):
        render_sql("{{ data_interval_start }}", WITHOUT, "t.sql")
    with pytest.raises(SqlTaskError, match=r"t\.sql: .*no whole number"):
        render_sql("{{ days(ds, 'x') }}", TASK, "t.sql")


def test_program_sees_interval_and_zone_in_its_environment() -> None:
    found = variables(TASK)

    assert found["NIMBUS_DATA_INTERVAL_START"] == "2026-03-28T06:00:00+01:00"
    assert found["NIMBUS_DATA_INTERVAL_END"] == found["NIMBUS_LOGICAL_DATE"] == "2026-03-29T06:00:00+02:00"
    assert found["NIMBUS_TZ"] == "Europe/Berlin"
    assert found.keys() - variables(WITHOUT).keys() == {
        "NIMBUS_DATA_INTERVAL_START",
        "NIMBUS_DATA_INTERVAL_END",
    }


def test_program_sees_what_orders_its_writes_while_its_attempt_has_a_number() -> None:
    task = replace(TASK, cluster="c", run_number=1 << 32)

    found = variables(task)
    assert found["NIMBUS_WRITE_KEY"] == "c/p.t/2026-03-28T05:00:00Z_2026-03-29T04:00:00Z"
    assert found["NIMBUS_WRITE_VERSION"] == str((1 << 32) + 1)
    assert variables(replace(task, attempt=257)).keys() == variables(TASK).keys()
    assert replace(WITHOUT, cluster="c").write_key == "c/p.t/"


def test_write_version_orders_runs_and_the_fence_token_does_not() -> None:
    numbers = [first := next_number(1, 0), next_number(1, first)]
    old, new = (
        replace(TASK, run_number=number, attempt=attempt, fence_token=fence_token(attempt))
        for number, attempt in zip(numbers, (3, 1), strict=True)
    )

    assert old.write_key == new.write_key
    assert old.write_version < new.write_version
    assert old.fence_token > new.fence_token


def test_program_with_very_many_inputs_has_them_in_no_variables() -> None:
    inputs = {f"task_{number}": Path("/data") for number in range(MAX_INPUTS + 1)}
    few = dict(list(inputs.items())[1:])

    assert variables(replace(TASK, inputs=few))["NIMBUS_INPUT_task_1"] == "/data"
    assert variables(replace(TASK, inputs=inputs)) == variables(TASK)


@pytest.mark.parametrize("interval", [None, DataInterval(start=BEFORE, end=DAY)], ids=["none", "given"])
def test_context_of_a_task_has_the_interval_and_zone_of_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: DataInterval | None
) -> None:
    bench = Bench(tmp_path)
    order = bench.order("task.py")
    order = replace(order, data_interval=interval, timezone="Europe/Berlin", run_number=1 << 32)
    file = tmp_path / "context.json"
    file.write_text(json.dumps(context_document(bench.startup().plan, order, tmp_path)))
    bench.close()
    monkeypatch.setenv(CONTEXT_VARIABLE, str(file))
    context.cache_clear()

    found = context()

    context.cache_clear()
    if interval is None:
        assert (found.data_interval_start, found.data_interval_end) == (None, None)
    else:
        assert (found.data_interval_start, found.data_interval_end) == (interval.start, interval.end)
    assert found.tz == "Europe/Berlin"
    assert found.write_version == (1 << 32) + 1
    assert found.cluster == bench.startup().plan.cluster != ""


def test_context_of_a_task_has_the_versions_that_its_run_has_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    versions = tuple(
        Version(
            partition=f"k{number}",
            number=number,
            run=RunId(f"r{number}"),
            task=TaskName("t"),
            source=AttemptId(RunId(f"r{number}"), TaskName("t"), 1),
            output=f"p/r{number}/t/1",
            at=DAY,
        )
        for number in range(2)
    )
    pins = {"orders": versions}
    inputs = {"load": "p/r/load/1", **input_names(pins, ["orders"])}
    order = replace(bench.order("task.py"), pins=pins, inputs=inputs)
    for place in inputs.values():
        (bench.data / place / "data").mkdir(parents=True)
        (bench.data / place / "data" / "x.csv").write_text(place)
    file = tmp_path / "context.json"
    file.write_text(json.dumps(context_document(bench.startup().plan, order, tmp_path)))
    bench.close()
    monkeypatch.setenv(CONTEXT_VARIABLE, str(file))
    context.cache_clear()

    found = context()

    context.cache_clear()
    (first, second) = found.reads["orders"]
    assert dict(found.inputs) == {"load": bench.data / "p/r/load/1"}
    assert (first.partition, first.run, first.number, first.at) == ("k0", "r0", 0, DAY)
    assert (second.path / "data" / "x.csv").read_text() == "p/r1/t/1"
    assert second.files("data") == [f"{second.uri}/data/x.csv"]
    assert second.uri == f"file://{bench.data}/p/r1/t/1"
    assert json.loads(variables(found)["NIMBUS_READS"]) == {
        "orders": [str(bench.data / "p/r0/t/1"), str(bench.data / "p/r1/t/1")]
    }
    assert "NIMBUS_READS" not in variables(TASK)
