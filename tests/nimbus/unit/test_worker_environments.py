"""Environments of tasks: what is found on a host, and what cannot be used, with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import Tag

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.worker import environments
from nimbus.worker.environments import Environments, FoundEnvironment, TaskEnvironment


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


def looked(environment: TaskEnvironment, java_home: Path | None = None) -> FoundEnvironment | str:
    return Environments([environment], lambda: java_home)["other"]


def found(folder: Path, version: str, spark: str, of_java: str, **more: Path) -> Any:
    environment = TaskEnvironment(name="other", python=python(folder, version, spark), **more)  # type: ignore[arg-type]
    return looked(environment, java(folder / "java", of_java))


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
        ("3.12.0", "4.2.1", "11.0.2", "its Java is 11 (JAVA), and Spark 4.2.1 needs Java 17 or newer"),
        ("3.10.1", "3.5.9", "25.0.1", "its Java is 25 (JAVA), and Spark 3.5.9 needs Java 8 to 23"),
    ],
)
def test_versions_that_do_not_fit_are_told(
    tmp_path: Path, version: str, spark: str, of_java: str, why: str
) -> None:
    assert why in str(found(tmp_path, version, spark, of_java)).replace(str(tmp_path / "java"), "JAVA")


def test_interpreter_that_cannot_be_run_is_told_with_its_last_words(tmp_path: Path) -> None:
    broken = program(tmp_path / "python", "echo 'no such library' >&2; exit 3")

    for place, why in ((broken, "no such library"), (tmp_path / "none", "No such file")):
        assert f"{place} cannot be run: {why}" in looked(TaskEnvironment(name="other", python=place))


def test_spark_without_java_is_told_and_a_python_alone_needs_none(tmp_path: Path) -> None:
    spark = TaskEnvironment(name="other", python=python(tmp_path / "a", "3.11.2", "4.3.0"))
    plain = TaskEnvironment(name="other", python=python(tmp_path / "b", "3.11.2", ""))

    assert looked(spark) == "there is no Java for Spark 4.3.0: set its java_home"
    assert getattr(looked(plain), "versions", "") == "Python 3.11.2"


def test_spark_home_names_the_spark_and_must_fit_the_interpreters(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    assert "is it a Spark" in found(tmp_path, "3.11.2", "", "17", spark_home=home)

    (home / "jars" / "spark-core_2.13-4.0.1.jar").touch()

    assert found(tmp_path, "3.11.2", "", "17", spark_home=home).spark == "4.0.1"
    other = found(tmp_path, "3.11.2", "3.5.9", "17", spark_home=home)
    assert "Spark 4.0.1, and its Python has PySpark 3.5.9" in other


def test_tasks_that_need_what_an_environment_lacks_are_refused_with_its_version(tmp_path: Path) -> None:
    old, none = found(tmp_path, "3.11.2", "4.0.5", "17"), found(tmp_path, "3.11.2", "", "17")

    unfit: Mapping[TaskKind, str | None] = {kind: old.unfit(kind) for kind in (TaskKind.SQL, TaskKind.PYTHON)}
    assert set(unfit.values()) == {None}
    assert "needs Spark 4.1, and environment other has 4.0.5" in str(old.unfit(TaskKind.SPARK_PIPELINE))
    assert "has no Spark (Python 3.11.2)" in str(none.unfit(TaskKind.PYSPARK))
    assert none.unfit(TaskKind.PYTHON) is None


def test_environments_are_looked_at_side_by_side(tmp_path: Path) -> None:
    """Each of these interpreters waits for the other."""
    meeting = []
    for mine, other in (("a", "b"), ("b", "a")):
        waits = f"touch {tmp_path}/{mine}.here; until [ -e {tmp_path}/{other}.here ]; do sleep 0.01; done"
        place = program(tmp_path / mine, f"""{waits}; echo '[[3, 11], "3.11.2", ""]'""")
        meeting.append(TaskEnvironment(name=mine, python=place))

    assert not [why for why in Environments(meeting).values() if isinstance(why, str)]


def test_silent_interpreter_is_told_and_keeps_no_other_from_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "_PATIENCE_S", 2.0)
    silent = TaskEnvironment(name="silent", python=program(tmp_path / "a" / "python", "exec sleep 600"))
    told = TaskEnvironment(name="told", python=python(tmp_path / "b", "3.11.2", ""))

    seen = Environments([silent, told])

    assert seen["silent"] == f"{silent.python} did not answer in 2 s"
    assert isinstance(seen["told"], FoundEnvironment)


def test_mended_and_broken_environments_are_seen_at_the_next_probe(tmp_path: Path) -> None:
    place = tmp_path / "python"
    environment = TaskEnvironment(name="other", python=place)
    seen = Environments([environment])
    assert "No such file" in str(seen["other"])

    python(tmp_path, "3.12.1", "")
    seen.probe()
    assert getattr(seen["other"], "versions", "") == "Python 3.12.1"

    place.unlink()
    seen.probe()
    assert "No such file" in str(seen["other"])
