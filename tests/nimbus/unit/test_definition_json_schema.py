"""The JSON Schema of definitions: shipped definitions are valid, and wrong ones are not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from nimbus.cli.main import cli
from nimbus.config.values import parse_duration, parse_size
from nimbus.definition.json_schema import definition_schema
from nimbus.definition.models import PipelineKeys, TaskKeys

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/pipeline.yaml"))
TASK = {"type": "python", "script": "work.py"}


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(definition_schema())


def faults(**said: Any) -> list[str]:
    """Errors of a small definition with a given part."""
    return [error.message for error in validator().iter_errors({"schema": 1, "name": "small", **said})]


def task_faults(**said: Any) -> list[str]:
    return faults(tasks={"work": {**TASK, **said}})


def test_schema_is_one_of_its_draft() -> None:
    Draft202012Validator.check_schema(definition_schema())


def test_examples_are_there() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_example_fits(file: Path) -> None:
    validator().validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize(
    "said",
    [
        {"timeout": "90s", "priority": "high", "retries": {"limit": 3, "delay": "1.5m"}},
        {"limits": {"memory": "1.5GiB"}, "args": ["x", 3, True, 0.5]},
        {"needs": ["other"], "when": True},
        {"needs": {"other": "one_failed", "third": "none_failed_min_one_success"}},
        {"needs": {"other": "not_failed"}, "when": "{{ params.full }}"},
        {"timeout": None},
    ],
)
def test_task_fits(said: dict[str, Any]) -> None:
    assert task_faults(**said) == []


@pytest.mark.parametrize(
    "said",
    [
        {"timeout": "90"},
        {"timeout": 90},
        {"timout": "90s"},
        {"priority": "urgent"},
        {"priority": 2},
        {"limits": {"memory": "1.5GB"}},
        {"needs": {"other": "sometimes"}},
        {"script": "work.sql"},
        {"type": "shell"},
        {"type": "bash"},
        {"spark": {"deploy": "clusters"}},
    ],
)
def test_task_does_not_fit(said: dict[str, Any]) -> None:
    assert task_faults(**said) != []


def test_definition_does_not_fit_with_a_wrong_schema_name_or_task_name() -> None:
    assert faults(schema=2, tasks={"work": TASK}) != []
    assert faults(name="Two words", tasks={"work": TASK}) != []
    assert faults(tasks={"Work 1": TASK}) != []
    assert faults() != []


@pytest.mark.parametrize("text", ["10s", " 1.5 m ", "2h", "0ms"])
def test_duration_that_fits_is_read(text: str) -> None:
    parse_duration(text)

    assert task_faults(retries={"delay": text}) == []


@pytest.mark.parametrize("text", ["64MiB", " 1.5 GiB ", "20000000B"])
def test_size_that_fits_is_read(text: str) -> None:
    parse_size(text)

    assert task_faults(limits={"memory": text}) == []


def test_schema_has_every_key_once() -> None:
    found = definition_schema()

    assert set(found["properties"]) == _keys(PipelineKeys)
    assert set(found["$defs"]["TaskKeys"]["properties"]) == _keys(TaskKeys)


def test_every_key_of_the_schema_says_what_it_is_and_what_holds_without_it() -> None:
    found = definition_schema()
    parts = {"pipeline.yaml": found, **found["$defs"]}
    keys = [
        (f"{name}.{key}", said, key in part.get("required", ()))
        for name, part in parts.items()
        for key, said in part.get("properties", {}).items()
    ]

    assert len(keys) > 90
    assert [place for place, said, _ in keys if not said.get("description", "").endswith(".")] == []
    assert [place for place, said, required in keys if ("default" in said) == required] == []
    assert [name for name, part in parts.items() if not part.get("description")] == []


def test_defaults_of_the_schema_fit_it() -> None:
    found = definition_schema()
    for name, part in {"": found, **found["$defs"]}.items():
        for key, said in part.get("properties", {}).items():
            if "default" in said:
                check = Draft202012Validator({**said, "$defs": found["$defs"]})
                assert list(check.iter_errors(said["default"])) == [], f"{name}.{key}"


def test_defaults_of_the_schema_are_those_of_the_definition() -> None:
    found = definition_schema()

    assert found["properties"]["priority"]["default"] == "medium"
    assert found["properties"]["files"]["default"] == ["**/*"]
    assert found["$defs"]["ScheduleKeys"]["properties"]["catchup"]["default"] == "latest"
    assert found["$defs"]["TaskKeys"]["properties"]["timeout"]["default"] is None


def _keys(model: type[PipelineKeys | TaskKeys]) -> set[str]:
    """The allowed keys of a file. A field may have another key."""
    return {str(field.validation_alias or field.alias or name) for name, field in model.model_fields.items()}


def test_command_prints_the_schema() -> None:
    result = CliRunner().invoke(cli, ["pipeline", "schema"], catch_exceptions=False)

    assert json.loads(result.stdout) == definition_schema()
