"""Declarative pipelines are checked by Spark before they are published."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nimbus.cli.exits import CliError
from nimbus.cli.main import cli
from nimbus.cli.pipeline import sources
from nimbus.java import JavaMissingError
from nimbus.worker.host import procfs
from tests.nimbus.worker_bench import SPARK

DEFINITION = """\
schema: 1
name: sales
parameters: {least: {type: integer, default: 3}}
python_path: [lib]
tasks:
  etl: {type: spark_pipeline, spec: etl/spark-pipeline.yml}
"""
SPEC = "name: etl\nstorage: file:///nowhere/storage\nlibraries: [{glob: {include: flows/**}}]\n"
FLOW = """\
from nimbus.task import context
from pyspark import pipelines as dp
from shared import TOP

@dp.materialized_view
def numbers():
    return spark.range(context().parameters["least"], TOP)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "sales"
    (place / "etl" / "flows").mkdir(parents=True)
    (place / "lib").mkdir()
    (place / "pipeline.yaml").write_text(DEFINITION)
    (place / "etl" / "spark-pipeline.yml").write_text(SPEC)
    (place / "etl" / "flows" / "numbers.py").write_text(FLOW)
    (place / "etl" / "flows" / "evens.sql").write_text(
        "CREATE MATERIALIZED VIEW evens AS SELECT id FROM numbers WHERE id % 2 = 0\n"
    )
    (place / "lib" / "shared.py").write_text("TOP = 9\n")
    return place


def _validate(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", "validate", str(folder), *words])


def test_dry_run_is_left_out_with_a_warning_where_there_is_no_java(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise JavaMissingError(("PATH: has no executable `java`",))

    monkeypatch.setattr("nimbus.java.find_java", missing)
    found = _validate(folder, "-o", "json")

    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["dry_run"]["etl"].startswith("skipped: ")
    assert "warning: task etl is not dry-run: " in found.stderr


def test_dry_run_is_left_out_where_outputs_of_other_tasks_are_needed(folder: Path) -> None:
    (folder / "load.py").touch()
    more = DEFINITION.replace("yml}", "yml, needs: [load]}") + "  load: {type: python, script: load.py}\n"
    (folder / "pipeline.yaml").write_text(more)

    found = _validate(folder)

    assert found.exit_code == 0, found.output
    assert "warning: task etl is not dry-run: it needs load, whose outputs are not there" in found.stderr


def test_dry_run_is_left_out_where_datasets_are_read(folder: Path) -> None:
    text = DEFINITION.replace("yml}", "yml, reads: [orders]}") + "reads: {orders: {}}\n"
    (folder / "pipeline.yaml").write_text(text)

    found = _validate(folder)

    assert found.exit_code == 0, found.output
    assert "warning: task etl is not dry-run: it reads orders, and the versions" in found.stderr


def test_dry_run_is_left_out_where_another_spark_would_check(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "version", lambda _name: "4.0.5")
    old = _validate(folder)
    (folder / "pipeline.yaml").write_text(DEFINITION.replace("yml}", "yml, environment: spark42}"))
    elsewhere = _validate(folder)

    assert (old.exit_code, elsewhere.exit_code) == (0, 0)
    assert "not dry-run: a declarative pipeline needs Spark 4.1, and Spark is 4.0.5 here" in old.stderr
    assert "not dry-run: environment spark42 is on workers" in elsewhere.stderr


@pytest.mark.spark
@pytest.mark.thorough  # two JVMs
@pytest.mark.skipif(SPARK < (4, 1), reason="there are none before Spark 4.1")
@pytest.mark.usefixtures("java_home")
def test_validate_lets_spark_check_declarative_pipelines_unless_told_not_to(folder: Path) -> None:
    right = _validate(folder, "-o", "json")
    (folder / "etl" / "flows" / "evens.sql").write_text(
        "CREATE MATERIALIZED VIEW evens AS SELECT nope FROM numbers\n"
    )
    wrong = _validate(folder)
    unchecked = _validate(folder, "--no-dry-run")

    assert (right.exit_code, json.loads(right.stdout)["dry_run"]) == (0, {"etl": "passed"}), right.output
    assert wrong.exit_code == 2, wrong.output
    assert "nope" in wrong.stderr
    assert "task etl: Spark refuses the declarative pipeline etl/spark-pipeline.yml" in wrong.stderr
    assert unchecked.exit_code == 0
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.timeout(60)
def test_dry_run_that_hangs_is_ended_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    hangs, child = tmp_path / "python", tmp_path / "child"
    hangs.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {child}\nsleep 600\n")
    hangs.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hangs))
    monkeypatch.setattr(sources, "_DEADLINE_S", 1.0)
    monkeypatch.setattr(sources, "_environment", lambda _: {"PATH": os.environ["PATH"]})
    monkeypatch.setattr(sources, "_prepare", lambda place, *_: (place / "work" / "tmp").mkdir(parents=True))
    task: Any = SimpleNamespace(name="etl", script="etl.yml")

    with pytest.raises(CliError, match="it did not end within 1 s"):
        sources._check_flows(task, task, ())

    pid = int(child.read_text())
    eventually(lambda: pid not in [process.id.pid for process in procfs.living()])
