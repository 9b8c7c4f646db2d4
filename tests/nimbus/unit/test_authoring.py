"""Pipelines written in Python: the same definition as YAML, and a run of them in one process."""

from __future__ import annotations

import inspect
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from nimbus import tables
from nimbus.authoring import Pipeline, options, pipeline, task, trial
from nimbus.cli.exits import CliError
from nimbus.cli.pipeline.sources import read_sources
from nimbus.definition import InvalidDefinitionError, parse_definition
from nimbus.domain.pipelines.parameters import InvalidParametersError
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.task import NotInATaskError, TaskContext, context
from tests.nimbus import authoring_options

EXAMPLES = Path(__file__).parents[3] / "examples"


@task(args=["{{ params.rows }}"], retries={"limit": 3, "delay": timedelta(seconds=90)})
def load(ctx: TaskContext, rows: str) -> None:
    (ctx.output / "rows").write_text(rows)


@task(needs=[load], when="{{ params.rows > 1 }}")
def count(ctx: TaskContext) -> int:
    return int((ctx.inputs["load"] / "rows").read_text())


def made(*tasks: Any, **said: Any) -> Pipeline:
    parameters: dict[str, options.ParameterOptions] = {"rows": {"type": "integer", "default": 2}}
    return pipeline("made", file=__file__, tasks=tasks, parameters=parameters, **said)


def spec_of(text: str) -> PipelineSpec:
    return parse_definition(text.encode(), "test", is_published=True)


# The definition


def test_definition_is_that_of_the_same_yaml() -> None:
    report = task("report", type="sql", script="report.sql", needs={count: "done"})
    written = f"""
schema: 1
name: made
schedule: {{cron: "0 6 * * *", timezone: Europe/Berlin}}
parameters: {{rows: {{type: integer, default: 2}}}}
tasks:
  load:
    type: python
    script: {Path(__file__).name}
    args: ["{{{{ params.rows }}}}"]
    retries: {{limit: 3, delay: 90s}}
  count: {{type: python, script: {Path(__file__).name}, needs: [load], when: "{{{{ params.rows > 1 }}}}"}}
  report: {{type: sql, script: report.sql, needs: {{count: done}}}}
"""

    found = made(load, count, report, schedule={"cron": "0 6 * * *", "timezone": "Europe/Berlin"})

    assert spec_of(found.yaml()) == spec_of(written)


def test_options_are_the_keys_of_the_definition() -> None:
    assert authoring_options.options() == authoring_options.PLACE.read_text(), (
        "run python -m tests.nimbus.authoring_options"
    )


def test_tasks_of_one_name_are_refused() -> None:
    again = task(name="load")(lambda ctx: None)

    with pytest.raises(ValueError, match="two tasks named 'load'"):
        made(load, again)


def test_need_that_is_not_a_task_of_the_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match=r"count needs load, which is not in tasks"):
        made(count)


def test_task_is_called_as_its_function(tmp_path: Path) -> None:
    seen: list[object] = []
    again = task(lambda ctx, name: seen.append((ctx, name)))
    ctx: Any = object()

    again(ctx, "you")

    assert seen == [(ctx, "you")]


# The file


def example(folder: Path) -> Path:
    file = folder / "pipeline.py"
    file.write_text((EXAMPLES / "hello_python" / "pipeline.py").read_text())
    return file


def run_file(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, file.name, *arguments],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_example_is_up_to_date() -> None:
    read_sources(EXAMPLES / "hello_python")


def test_file_writes_the_definition_beside_it(tmp_path: Path) -> None:
    file = example(tmp_path)

    done = run_file(file)

    assert done.returncode == 0
    assert "hello_python, 2 tasks" in done.stderr
    spec, files = read_sources(tmp_path)
    assert spec.name == "hello_python"
    assert {item.path for item in files} == {"pipeline.py", "pipeline.yaml"}


def test_publishing_is_refused_when_the_file_describes_another_definition(tmp_path: Path) -> None:
    file = example(tmp_path)
    run_file(file)
    file.write_text(file.read_text().replace('timeout="2m"', 'timeout="3m"'))

    with pytest.raises(CliError, match=r"run python pipeline\.py"):
        read_sources(tmp_path)


def test_file_does_not_replace_a_definition_that_a_person_wrote(tmp_path: Path) -> None:
    file = example(tmp_path)
    (tmp_path / "pipeline.yaml").write_text("schema: 1\n")

    done = run_file(file)

    assert done.returncode == 2
    assert "was not made by a file in Python" in done.stderr
    assert (tmp_path / "pipeline.yaml").read_text() == "schema: 1\n"


def test_file_says_what_is_wrong_with_the_definition(tmp_path: Path) -> None:
    file = example(tmp_path)
    file.write_text(file.read_text().replace("params.name", "params.nme"))

    done = run_file(file)

    assert done.returncode == 2
    assert "tasks.greet.args[0]" in done.stderr


# A test of a pipeline


def test_run_renders_arguments_and_hands_outputs_on(tmp_path: Path) -> None:
    counted: list[object] = []

    run = made(load, count).test({"rows": 7}, replace={"count": counted.append}, folder=tmp_path)

    assert run.state == "succeeded"
    assert (run.output("load") / "rows").read_text() == "7"
    (ctx,) = counted
    assert isinstance(ctx, TaskContext)
    assert ctx.inputs["load"] == run.output("load")
    assert ctx.parameters == {"rows": 7}


def test_context_is_as_in_an_attempt_and_gone_afterwards() -> None:
    seen = []

    made(load).test(replace={"load": lambda ctx, rows: seen.append(context().task)})

    assert seen == ["load"]
    with pytest.raises(NotInATaskError):
        context()


def test_when_decides_as_in_a_run() -> None:
    run = made(load, count).test({"rows": 1})

    assert run.states == {"load": "succeeded", "count": "skipped"}


def fail(ctx: TaskContext, *_: str) -> None:
    raise ZeroDivisionError("no rows")


def test_exception_of_a_task_ends_the_test() -> None:
    with pytest.raises(ZeroDivisionError):
        made(load).test(replace={"load": fail})


def test_failure_is_followed_up_as_in_a_run() -> None:
    mended: list[object] = []
    mend = task(name="mend", needs={load: "failed"})(mended.append)

    run = made(load, count, mend).test(replace={"load": fail}, raises=False)

    assert run.state == "failed"
    assert run.states == {"load": "failed", "count": "not_run", "mend": "succeeded"}
    assert isinstance(run.errors["load"], ZeroDivisionError)
    assert len(mended) == 1


def test_interval_and_date_are_those_given() -> None:
    first, second = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
    seen: list[str] = []
    dated = task(name="dated", args=["{{ ds }} {{ data_interval_start }}", "{{ release_root }}"])(
        lambda ctx, *texts: seen.extend(texts)
    )

    made(dated).test(data_interval=(first, second))
    made(dated).test(logical_date=second + timedelta(days=3), data_interval=(first, second))

    assert seen[2].startswith("2026-03-05 ")
    assert seen[:2] == ["2026-03-02 2026-03-01 00:00:00+00:00", str(Path(__file__).parent)]


def test_program_needs_a_function_in_its_place() -> None:
    report = task("report", type="sql", script="report.sql")

    with pytest.raises(ValueError, match="programs or child runs, which a test does not start: report"):
        made(report).test()


def test_result_that_a_function_returns_reaches_those_that_read_it() -> None:
    seen: list[str] = []
    plan = task(name="plan")(lambda ctx: {"rows": 3})
    many = task(name="many", needs=[plan], when="{{ tasks.plan.result.rows > 5 }}")(lambda ctx: None)
    read = task(name="read", needs=[plan], args=["{{ tasks.plan.result.rows }} {{ vars.place }}"])(
        lambda ctx, text: seen.append(text)
    )

    run = made(plan, many, read).test(variables={"place": "here"})

    assert run.results == {"plan": {"rows": 3}}
    assert run.states == {"plan": "succeeded", "many": "skipped", "read": "succeeded"}
    assert seen == ["3 here"]


def test_result_that_is_missing_fails_who_reads_it() -> None:
    plan = task(name="plan")(lambda ctx: None)
    read = task(name="read", needs=[plan], args=["{{ tasks.plan.result.rows }}"])(lambda ctx, text: None)

    assert made(plan, read).test(raises=False).states == {"plan": "succeeded", "read": "failed"}


def test_what_is_waited_for_is_there_unless_it_is_replaced() -> None:
    release = task("release", type="approval", prompt="Go on?")
    there = task("there", type="wait", waits_for=[{"file": "/data/{{ ds }}"}])

    assert made(release, there).test().state == "succeeded"
    assert made(release, there).test(replace={"release": fail}, raises=False).states["release"] == "failed"


def test_wrong_parameter_is_refused() -> None:
    with pytest.raises(InvalidParametersError, match="rows"):
        made(load).test({"rows": "many"})


def test_wrong_definition_is_refused() -> None:
    wrong = task(name="wrong", args=["{{ params.rws }}"])(lambda ctx, text: None)

    with pytest.raises(InvalidDefinitionError, match=r"tasks\.wrong\.args\[0\]"):
        made(wrong).test()


def test_yaml_is_read_back_as_it_was_said() -> None:
    assert yaml.safe_load(made(load).yaml()) == made(load).definition()


def test_task_that_is_tried_begins_with_the_checkpoint_it_is_given() -> None:
    def load(ctx: TaskContext) -> None:
        ctx.checkpoint({"row": ctx.last_checkpoint["row"] + 1 if ctx.last_checkpoint else 1})
        raise ValueError("no more")

    loads = made(task(name="load")(load), task(name="other")(lambda ctx: None))

    assert loads.test(raises=False).checkpoints == {"load": {"row": 1}}
    assert loads.test(raises=False, checkpoints={"load": {"row": 7}}).checkpoints == {"load": {"row": 8}}


def test_task_that_is_tried_twice_replaces_its_rows_in_a_table(tmp_path: Path) -> None:
    def load(ctx: TaskContext) -> None:
        with (
            closing(sqlite3.connect(tmp_path / "tables.sqlite")) as connection,
            tables.sql.replace(connection, "orders") as cursor,
        ):
            cursor.execute("INSERT INTO orders VALUES (?)", (ctx.write_version,))

    with closing(sqlite3.connect(tmp_path / "tables.sqlite")) as connection:
        connection.execute(tables.sql.CREATE_MARKS)
        connection.execute("CREATE TABLE orders (version integer)")
        found = []
        for _ in range(2):
            made(task(name="load")(load)).test()
            found += connection.execute("SELECT version FROM orders").fetchall()

    assert len(found) == 2
    assert found == sorted(found)


def test_task_reads_the_versions_that_its_test_gives(tmp_path: Path) -> None:
    def late(ctx: TaskContext) -> dict[str, Any]:
        parts = ctx.reads["parts"]
        assert not ctx.reads["codes"]
        return {part.item: [part.key, (part.path / "x").read_text(), part.value["rows"]] for part in parts}

    (tmp_path / "x").write_text("7")
    reads: dict[str, options.ReadOptions] = {"parts": {"dataset": "part"}, "codes": {"optional": True}}
    reader = made(task(name="late", reads=["parts", "codes"])(late), reads=reads)
    parts: list[trial.GivenVersion] = [
        {"path": tmp_path, "partition": "eu", "item": "EU", "value": {"rows": 3}},
        {"path": tmp_path, "partition": "us", "item": "US", "value": {"rows": 4}},
    ]

    run = reader.test(reads={"parts": parts})

    assert run.results["late"] == {"EU": ["eu", "7", 3], "US": ["us", "7", 4]}


def test_test_without_versions_of_what_is_read_says_what_is_missing() -> None:
    reader = made(task(name="late", reads=["parts"])(lambda ctx: None), reads={"parts": {}})

    with pytest.raises(
        ValueError, match=r"these reads need some: parts; give the versions of each, as reads="
    ):
        reader.test()
    with pytest.raises(ValueError, match="the pipeline does not read orders"):
        reader.test(reads={"parts": [], "orders": []})


def test_needs_may_be_names_of_tasks() -> None:
    by_name = task("late", type="sql", script="late.sql", needs=["load"])
    how = task("last", type="sql", script="late.sql", needs={"late": "done"})

    tasks = made(load, by_name, how).definition()["tasks"]

    assert (tasks["late"]["needs"], tasks["last"]["needs"]) == (["load"], {"late": "done"})


def test_need_that_is_no_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"task late needs lod, which is not in tasks=\[\.\.\.\]"):
        made(load, task("late", type="sql", script="late.sql", needs=["lod"]))
    with pytest.raises(TypeError, match=r"task late: needs is a list, so write needs=\['load'\]"):
        task("late", type="sql", script="late.sql", needs="load")


def test_every_argument_of_a_test_is_documented() -> None:
    text = (EXAMPLES.parent / "docs" / "pipelines.md").read_text()

    missing = [name for name in inspect.signature(Pipeline.test).parameters if f"  | `{name}` |" not in text]

    assert missing == ["self"]
