"""Environments of tasks: what is found on a host, and what cannot be used, with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.tags import Tag

from nimbus.domain.pipeline import TaskKind
from nimbus.worker.environments import (
    EnvironmentUnusableError,
    FoundEnvironment,
    TaskEnvironment,
    find_environment,
)


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def python(folder: Path, version: str, spark: str) -> Path:
    told = [[int(part) for part in version.split(".")[:2]], version, spark]
    return program(folder / "python", f"echo '{json.dumps(told)}'")


def java(folder: Path, version: str) -> Path:
    program(folder / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")
    return folder


def found(folder: Path, version: str, spark: str, of_java: str, **more: Path) -> FoundEnvironment:
    environment = TaskEnvironment(name="other", python=python(folder, version, spark), **more)  # type: ignore[arg-type]
    return find_environment(environment, java(folder / "java", of_java))


def test_versions_are_found_with_the_workers_java_or_its_own(tmp_path: Path) -> None:
    with_ours = found(tmp_path, "3.9.18", "3.5.9", "17.0.15")
    with_own = found(tmp_path, "3.9.18", "3.5.9", "17.0.15", java_home=java(tmp_path / "old", "1.8.0_402"))

    assert with_ours.versions == "Python 3.9.18, Spark 3.5.9, Java 17"
    assert with_own.versions == "Python 3.9.18, Spark 3.5.9, Java 8"
    assert Tag("cp39", "cp39", "any") not in with_ours.tags()
    assert Tag("py3", "none", "any") in with_ours.tags()
    assert any(tag.interpreter == "cp39" and tag.abi == "cp39" for tag in with_ours.tags())


@pytest.mark.parametrize(
    ("version", "spark", "of_java", "why"),
    [
        ("3.8.18", "3.5.9", "17", "is Python 3.8.18, and 3.9 or newer is needed"),
        ("3.10.1", "3.4.4", "17", "its Spark is 3.4.4, and 3.5 or newer is needed"),
        ("3.12.0", "4.2.1", "11.0.2", "its Java is 11 .*, and Spark 4.2.1 needs 17"),
    ],
)
def test_too_old_an_environment_is_told(
    tmp_path: Path, version: str, spark: str, of_java: str, why: str
) -> None:
    with pytest.raises(EnvironmentUnusableError, match=why):
        found(tmp_path, version, spark, of_java)


def test_interpreter_that_cannot_be_run_is_told_with_its_last_words(tmp_path: Path) -> None:
    broken = program(tmp_path / "python", "echo 'no such library' >&2; exit 3")

    for place, why in ((broken, "no such library"), (tmp_path / "none", "No such file")):
        with pytest.raises(EnvironmentUnusableError, match=why):
            find_environment(TaskEnvironment(name="other", python=place), None)


def test_spark_without_java_is_told_and_a_python_alone_needs_none(tmp_path: Path) -> None:
    spark = TaskEnvironment(name="other", python=python(tmp_path / "a", "3.11.2", "4.3.0"))
    plain = TaskEnvironment(name="other", python=python(tmp_path / "b", "3.11.2", ""))

    with pytest.raises(EnvironmentUnusableError, match="needs Java 17 or newer: set its java_home"):
        find_environment(spark, None)
    assert find_environment(plain, None).versions == "Python 3.11.2"


def test_spark_home_names_the_spark_and_must_fit_the_interpreters(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    with pytest.raises(EnvironmentUnusableError, match="is it a Spark"):
        found(tmp_path, "3.11.2", "", "17", spark_home=home)

    (home / "jars" / "spark-core_2.13-4.0.1.jar").touch()

    assert found(tmp_path, "3.11.2", "", "17", spark_home=home).spark == "4.0.1"
    with pytest.raises(EnvironmentUnusableError, match=r"Spark 4.0.1, and its Python has PySpark 3.5.9"):
        found(tmp_path, "3.11.2", "3.5.9", "17", spark_home=home)


def test_tasks_that_need_what_an_environment_lacks_are_refused_with_its_version(tmp_path: Path) -> None:
    old, none = found(tmp_path, "3.11.2", "4.0.5", "17"), found(tmp_path, "3.11.2", "", "17")

    unfit: Mapping[TaskKind, str | None] = {kind: old.unfit(kind) for kind in (TaskKind.SQL, TaskKind.PYTHON)}
    assert set(unfit.values()) == {None}
    assert "needs Spark 4.1, and environment other has 4.0.5" in str(old.unfit(TaskKind.SPARK_PIPELINE))
    assert "has no Spark (Python 3.11.2)" in str(none.unfit(TaskKind.PYSPARK))
    assert none.unfit(TaskKind.PYTHON) is None
