"""The form of `pipeline.yaml` as a JSON Schema, by which editors complete and check keys.

It knows less than `nimbus pipeline validate`: names of tasks, templates and files are not its business.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from nimbus.definition.models import DefinitionModel, TaskModel
from nimbus.definition.rules import KEYS, SUFFIXES
from nimbus.domain.pipeline import TaskKind

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _WithoutTitles(GenerateJsonSchema):
    """Editors would show `Max Delay` beside `max_delay`."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def definition_schema() -> dict[str, Any]:
    """The schema of a definition, draft 2020-12."""
    found = DefinitionModel.model_json_schema(by_alias=True, schema_generator=_WithoutTitles)
    found["$defs"][TaskModel.__name__]["allOf"] = [_of_kind(kind) for kind in KEYS]
    _tidy(found)
    return {"$schema": _DIALECT, "title": "pipeline.yaml", **found}


def _of_kind(kind: TaskKind) -> dict[str, Any]:
    """What a task of a kind must have, and what it runs."""
    keys = KEYS[kind]
    then: dict[str, Any] = {"required": list(keys)}
    if kind in SUFFIXES:
        endings = "|".join(ending.replace(".", r"\.") for ending in SUFFIXES[kind])
        then["properties"] = {keys[0]: {"pattern": f"({endings})$"}}
    return {"if": {"properties": {"type": {"const": kind.value}}, "required": ["type"]}, "then": then}


def _tidy(part: Any) -> None:
    """Remove what only pydantic's users know: titles of classes, defaults that a file cannot say."""
    if isinstance(part, dict):
        if isinstance(part.get("title"), str):
            del part["title"]
        if "default" in part and (
            part["default"] is None or part["default"] not in part.get("enum", [part["default"]])
        ):
            del part["default"]
        if "patternProperties" in part:
            part["additionalProperties"] = False
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            _tidy(inner)
