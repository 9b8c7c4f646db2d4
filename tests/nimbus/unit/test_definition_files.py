"""Pipeline definitions and the files beside them: what is missing, cannot be run, or is no good template."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.definition import InvalidDefinitionError, read_definition
from nimbus.templates.client import Templates

TEMPLATES = Templates()
HEAD = "schema: 1\nname: flights\n"


def folder(place: Path, tasks: str, more: str = "") -> Path:
    place.mkdir(exist_ok=True)
    (place / "pipeline.yaml").write_text(HEAD + more + "tasks:\n" + tasks)
    return place


def disk_refusal(place: Path) -> list[str]:
    with pytest.raises(InvalidDefinitionError) as refused:
        read_definition(place)
    return str(refused.value).replace(f"{place}/", "").splitlines()


def test_script_that_is_not_there_is_named_with_the_one_beside_it(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: python, script: tasks/laod.py}\n")
    assert disk_refusal(place) == [
        "pipeline.yaml:4: tasks.a.script: there is no file 'tasks/laod.py' in the pipeline's folder"
    ]

    (place / "tasks").mkdir()
    (place / "tasks" / "load.py").touch()

    (line,) = disk_refusal(place)
    assert line.endswith('(did you mean "tasks/load.py"?)')


def test_program_of_the_release_must_be_there_and_executable(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: shell, command: [./load.sh, x]}\n")
    (place / "laod.sh").touch()
    (line,) = disk_refusal(place)
    assert line == (
        "pipeline.yaml:4: tasks.a.command[0]: there is no file 'load.sh' in the pipeline's folder"
        ' (did you mean "./laod.sh"?)'
    )

    (place / "load.sh").touch()
    (line,) = disk_refusal(place)
    assert line == "pipeline.yaml:4: tasks.a.command[0]: 'load.sh' is not executable; run chmod +x on it"

    (place / "load.sh").chmod(0o755)
    (place / "load.sh").write_text("#!/bin/sh\n")
    assert read_definition(place).tasks[0].file == "load.sh"


def test_program_that_linux_can_start_nowhere_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: shell, command: [./load.sh]}\n")
    (place / "load.sh").write_bytes(b"#!/bin/sh\r\nsort\r\n")
    (place / "load.sh").chmod(0o755)

    (line,) = disk_refusal(place)

    assert line.startswith(
        "pipeline.yaml:4: tasks.a.command[0]: 'load.sh' cannot be started: "
        "its lines end as in Windows (CRLF); "
    )


@pytest.mark.parametrize("program", ["sort", "/usr/bin/sort"])
def test_program_of_the_host_is_no_file_of_the_release(tmp_path: Path, program: str) -> None:
    place = folder(tmp_path / "p", f"  a: {{type: shell, command: [{program}]}}\n")

    assert read_definition(place).tasks[0].file is None


def test_jar_that_is_not_there_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: spark_submit, jar: a.jar, main_class: a.B}\n")

    assert disk_refusal(place) == [
        "pipeline.yaml:4: tasks.a.jar: there is no file 'a.jar' in the pipeline's folder"
    ]


def test_script_behind_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.py").touch()
    place = folder(tmp_path / "p", "  a: {type: python, script: a.py}\n")
    (place / "a.py").symlink_to(tmp_path / "secret.py")

    (line,) = disk_refusal(place)

    assert "'a.py' is a link that leads out of the pipeline's folder" in line


def test_missing_folder_of_the_python_path_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: python, script: a.py}\n", "python_path: [lib]\n")
    (place / "a.py").touch()

    assert disk_refusal(place) == ["pipeline.yaml:3: python_path[0]: there is no folder 'lib' beside p/"]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "SELECT 1;\nSELECT {{ params.moth }}",
            "2: there is no parameter 'moth' (did you mean \"params.month\"?)",
        ),
        ("SELECT {{ ds }", "1: is not a template: unexpected '}'"),
        ("SELECT\n{% if x %}1{% endif %}", "2: there is no 'x'"),
    ],
)
def test_template_in_a_sql_file_is_checked_with_its_line(tmp_path: Path, sql: str, words: str) -> None:
    place = folder(
        tmp_path / "p",
        "  a: {type: sql, script: a.sql}\n",
        "parameters: {month: {type: integer, default: 1}}\n",
    )
    (place / "a.sql").write_text(sql)

    (line,) = disk_refusal(place)

    assert line.startswith("a.sql:")
    assert words in line


def test_good_template_in_a_sql_file_passes(tmp_path: Path) -> None:
    place = folder(
        tmp_path / "p",
        "  a: {type: sql, script: a.sql}\n",
        "parameters: {month: {type: integer, default: 1}}\n",
    )
    (place / "a.sql").write_text(
        "{% for m in range(params.month) %}SELECT {{ m }}, {{ params['month'] }};{% endfor %}"
        "{% if params.other is defined %}SELECT 1{% endif %} SELECT '{{ run.logical_date }}'"
    )

    assert read_definition(place).tasks[0].script == "a.sql"


def test_sql_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: sql, script: a.sql}\n")
    (place / "a.sql").write_bytes(b"\xff")

    (line,) = disk_refusal(place)

    assert "cannot be read as UTF-8 text" in line


def test_missing_definition_is_refused(tmp_path: Path) -> None:
    assert disk_refusal(tmp_path) == ["pipeline.yaml: there is no such file"]


def test_spec_that_is_not_there_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "p", "  a: {type: spark_pipeline, spec: a.yml}\n")

    assert disk_refusal(place) == [
        "pipeline.yaml:4: tasks.a.spec: there is no file 'a.yml' in the pipeline's folder"
    ]
