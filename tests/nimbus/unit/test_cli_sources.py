"""What is refused when a pipeline's folder is validated or published."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.cli.exits import CliError
from nimbus.cli.pipeline.sources import read_sources, warnings
from nimbus.definition import InvalidDefinitionError

PIPELINE = """\
schema: 1
name: p
dependencies: ["wheels/*.whl"]
tasks:
  t: {type: python, script: t.py}
"""

SPARK = "tasks:\n  s: {{type: pyspark, script: t.py, {}}}\n"


def test_two_wheels_of_one_package_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "t.py").touch()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "tool-1.0-py3-none-any.whl").touch()
    assert len(read_sources(tmp_path)[1]) == 3

    (tmp_path / "wheels" / "tool-2.0-py3-none-any.whl").touch()

    with pytest.raises(CliError, match=r"wheels/tool-1\.0\S* and wheels/tool-2\.0\S* are wheels of one pack"):
        read_sources(tmp_path)


def test_wheel_of_a_task_replaces_that_of_the_pipeline_and_one_that_nobody_names_is_a_warning(
    tmp_path: Path,
) -> None:
    text = PIPELINE.replace("script: t.py", "script: t.py, dependencies: [new/*.whl]")
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "t.py").touch()
    for name in ("wheels/tool-1.0", "new/tool-2.0", "dist/own-1.0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}-py3-none-any.whl").touch()

    spec, files = read_sources(tmp_path)

    assert spec.tasks[0].dependencies == ("new/*.whl", "wheels/*.whl")
    assert list(warnings(tmp_path, spec, files)) == [
        "warning: no `dependencies` names dist/own-1.0-py3-none-any.whl, so no task imports it"
    ]
    (tmp_path / "new" / "tool-2.1-py3-none-any.whl").touch()
    with pytest.raises(CliError, match="are wheels of one package"):
        read_sources(tmp_path)


def test_calendar_of_a_schedule_is_published_whatever_files_names(tmp_path: Path) -> None:
    schedule = "schedule: {cron: '@daily', calendar: de}\n"
    (tmp_path / "pipeline.yaml").write_text(
        f"schema: 1\nname: p\nfiles: [t.py]\n{schedule}{SPARK.format('')}"
    )
    (tmp_path / "t.py").touch()
    (tmp_path / "calendars").mkdir()
    for name in ("de", "other"):
        (tmp_path / "calendars" / f"{name}.yaml").write_text("holidays: [2026-05-01]\n")

    _, files = read_sources(tmp_path)

    assert [item.path for item in files] == ["calendars/de.yaml", "pipeline.yaml", "t.py"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("jars: [jars/*.jar]\n", ["3: jars[0]"]),
        ("files: [t.py, docs/**]\n", ["3: files[1]"]),
        (SPARK.format("jars: [jars/*.jar]"), ["4: tasks.s.jars[0]"]),
        (
            "jars: [a.jar, jars/*.jar]\n" + SPARK.format("jars: [jars/*.jar]"),
            ["3: jars[1]", "5: tasks.s.jars[0]"],
        ),
    ],
)
def test_pattern_that_matches_no_file_is_refused_with_its_places(
    tmp_path: Path, text: str, places: list[str]
) -> None:
    tasks = "" if "tasks:" in text else SPARK.format("")
    (tmp_path / "pipeline.yaml").write_text(f"schema: 1\nname: p\n{text}{tasks}")
    (tmp_path / "t.py").touch()
    (tmp_path / "a.jar").touch()

    with pytest.raises(InvalidDefinitionError) as refused:
        read_sources(tmp_path)

    lines = [line for line in str(refused.value).splitlines() if "matches no file below" in line]
    assert [line.partition("pipeline.yaml:")[2].partition(": pattern")[0] for line in lines] == places


def test_jars_are_files_of_the_release_whatever_its_files_are(tmp_path: Path) -> None:
    text = "schema: 1\nname: p\nfiles: [t.py]\njars: [jars/*.jar]\n" + SPARK.format("jars: [own.jar]")
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "t.py").touch()
    (tmp_path / "jars").mkdir()
    for name in ("own.jar", "jars/a.jar", "other.jar"):
        (tmp_path / name).touch()

    assert {item.path for item in read_sources(tmp_path)[1]} == {
        "pipeline.yaml",
        "t.py",
        "own.jar",
        "jars/a.jar",
    }
    (tmp_path / "jars" / "a,b.jar").touch()
    with pytest.raises(CliError, match=r"'jars/a,b\.jar' has one of , # % "):
        read_sources(tmp_path)


def test_script_whose_interpreter_this_host_lacks_is_a_warning(tmp_path: Path) -> None:
    tasks = "tasks:\n  t: {type: shell, command: [./t.sh]}\n"
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.partition("dependencies")[0] + tasks)
    script = tmp_path / "t.sh"
    script.write_text("#!/usr/bin/gone\n")
    script.chmod(0o755)
    spec, files = read_sources(tmp_path)

    assert list(warnings(tmp_path, spec, files)) == [
        "warning: task t: t.sh needs /usr/bin/gone, which is not on this host"
    ]
    script.write_text("#!/bin/sh\n")
    assert list(warnings(tmp_path, spec, files)) == []
