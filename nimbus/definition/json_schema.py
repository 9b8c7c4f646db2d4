"""The form of `pipeline.yaml` as a JSON Schema, with which editors complete and check keys.

It checks less than `nimbus pipeline validate`: no names of tasks, templates or files. A key's description is
the text below the field in its model.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from nimbus.config.services import Notify
from nimbus.definition import models
from nimbus.definition.models import PipelineKeys, TaskKeys
from nimbus.definition.rules import KEYS, SUFFIXES
from nimbus.domain.pipelines.pipeline import TaskKind

_CLASSES: list[type[BaseModel]] = [
    Notify,
    *(thing for thing in vars(models).values() if inspect.isclass(thing) and issubclass(thing, BaseModel)),
]
_MODELS = {model.__name__: model for model in _CLASSES}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out titles: editors would show `Max Delay` beside `max_delay`."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def definition_schema() -> dict[str, Any]:
    """The schema of a definition, draft 2020-12."""
    schema = PipelineKeys.model_json_schema(by_alias=True, schema_generator=_WithoutTitles)
    schema["$defs"][TaskKeys.__name__]["allOf"] = [_of_kind(kind) for kind in KEYS]
    _tidy(schema)
    for name, part in {PipelineKeys.__name__: schema, **schema["$defs"]}.items():
        _describe(part, _MODELS[name])
    return {"$schema": _DIALECT, "title": "pipeline.yaml", **schema}


def _of_kind(kind: TaskKind) -> dict[str, Any]:
    """The required keys of a kind of task, and the form of its file."""
    keys = KEYS[kind]
    then: dict[str, Any] = {"required": list(keys)}
    if kind in SUFFIXES:
        endings = "|".join(ending.replace(".", r"\.") for ending in SUFFIXES[kind])
        then["properties"] = {keys[0]: {"pattern": f"({endings})$"}}
    return {"if": {"properties": {"type": {"const": kind.value}}, "required": ["type"]}, "then": then}


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    """Add to each key its description and default."""
    texts = dict(_texts(model))
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key in part["properties"]:
            said = part["properties"][key]
            said["description"] = texts[name]
            if not field.is_required():
                said["default"] = _default(field, said)


def _texts(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """The texts below the fields of a model, from its source: Python does not keep them at run time."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101 - the source of a class
    for field, text in pairwise(tree.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                yield name, inspect.cleandoc(said).replace("\n", " ")
            case _:
                pass


def _default(field: FieldInfo, said: dict[str, Any]) -> Any:
    """The default value, in the form of a file."""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return {}
    if isinstance(value, Enum):
        return next(word for word in said["enum"] if word in (value.value, value.name.lower()))
    return value


def _tidy(part: Any) -> None:
    """Remove titles of classes, which only mean something to Pydantic."""
    if isinstance(part, dict):
        if isinstance(part.get("title"), str):
            del part["title"]
        if "patternProperties" in part:
            part["additionalProperties"] = False
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            _tidy(inner)
