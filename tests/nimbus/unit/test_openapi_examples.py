"""The examples in the API's document: all bodies have one, and each is a valid request or answer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from nimbus.api.openapi_examples import EXAMPLES
from nimbus.api.requests import RequestBody
from tests.nimbus.unit.openapi_changes import served

BODY = re.compile(r"#/components/schemas/(\w+)")


@pytest.fixture(scope="module")
def document() -> Any:
    return served()


def test_every_body_has_an_example(document: Any) -> None:
    operations = [one for path in document["paths"].values() for one in path.values()]
    bodies = {name for one in operations for name in BODY.findall(str(one.get("requestBody")))}
    schemas = document["components"]["schemas"]

    assert "StartRunBody" in bodies
    assert [name for name in bodies if "examples" not in schemas[name]] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_valid_by_its_schema_and_by_its_model(document: Any, name: str) -> None:
    named = {one for one in _models(BaseModel) if one.__name__ == name}
    (model,) = named - {base for one in named for base in one.__bases__}  # `of` derives it with more fields
    (example,) = document["components"]["schemas"][name]["examples"]
    whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}

    assert [error.message for error in Draft202012Validator(whole).iter_errors(example)] == []
    read = model.model_validate(example)
    if not isinstance(read, RequestBody):  # models of answers accept unknown fields, and drop them
        assert read.model_dump(mode="json", exclude_unset=True) == example


def _models(base: type[BaseModel]) -> set[type[BaseModel]]:
    return {base}.union(*map(_models, base.__subclasses__()))
