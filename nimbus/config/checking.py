"""Checks a document against a pydantic model, and reports errors in the user's words, not pydantic's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nimbus.config.document import Document
from nimbus.config.problems import MAX_SHOWN, KeyPath, Problem, SuggestingError
from nimbus.config.values import Unclear, described, is_secret
from nimbus.domain.wording import closest

AnyModel = TypeVar("AnyModel", bound=BaseModel)


class Strict(BaseModel):
    """A part of a document: no unknown keys, no silent conversions, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


_UNQUOTED = re.compile(r"true|false|[+-]?\d+(\.\d+)?")
"""Texts that YAML would read as another type without quotes."""
_MUST_BE = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "string_unicode": "text in Unicode",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}


def check(model: type[AnyModel], document: Document) -> tuple[AnyModel | None, list[Problem]]:
    """Validate a document's data: returns the model, or None with all problems."""
    try:
        return model.model_validate(document.data), []
    except ValidationError as error:
        details = [(_place(detail), detail) for detail in error.errors(include_url=False)]
        details.sort(key=lambda item: document.line_of(item[0]) or 0)
        shown = [_problem(model, document, *item) for item in details[:MAX_SHOWN]]
        # The others are only counted: suggestions for 100,000 keys would take hours.
        return None, shown + shown[-1:] * (len(details) - len(shown))


def _place(detail: ErrorDetails) -> KeyPath:
    return tuple(part for part in detail["loc"] if part != "[key]")


def keys_at(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """The keys that a model allows at a place; empty if it allows any key, or none."""
    section: type[BaseModel] | None = model
    depth = 0
    while depth < len(path) and section is not None:
        field = _field(section, path[depth])
        if field is None:
            return ()
        section, names = _model_in(field.annotation)
        depth += 1 + names
    return tuple(field.alias or name for name, field in section.model_fields.items()) if section else ()


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, int]:
    """The model inside an annotation, and the number of path parts (names, positions) that lead to it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, 0
    container = get_origin(annotation) in (dict, list)
    for argument in get_args(annotation):
        inner, names = _model_in(argument)
        if inner is not None:
            return inner, names + container
    return None, 0


def _problem(model: type[BaseModel], document: Document, path: KeyPath, detail: ErrorDetails) -> Problem:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        allowed = keys_at(model, path[:-1])
        used = _keys_in(document.data, path[:-1])
        unused = [key for key in allowed if key not in used]
        suggestion = closest(str(path[-1]), unused) or closest(str(path[-1]), allowed)
        known = "" if suggestion else f"; known here: {', '.join(allowed)}"
        return document.problem(path, f"unknown key{known}", suggestion)
    if kind == "missing":
        return document.problem(path, "is missing; it has no default")
    if kind == "value_error":
        error = context.get("error")
        if isinstance(error, SuggestingError):
            return document.problem((*path, *error.place), str(error), error.suggestion)
        return document.problem(path, str(error))
    if _is_secret(model, path):
        return document.problem(path, "must be text; put it in quotes")  # a secret is never shown
    if kind == "literal_error":
        choices: list[str] = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return document.problem(
            path, f"must be one of {', '.join(choices)}, not {described(value)}", closest(str(value), choices)
        )
    if kind in _MUST_BE:
        return document.problem(path, _must_be(_MUST_BE[kind], value))
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return document.problem(path, f"must be {words} {context[name]:g}, not {described(value)}")
    if kind == "too_short":
        return document.problem(path, "must not be empty")
    return document.problem(path, detail["msg"])


def _is_secret(model: type[BaseModel], path: KeyPath) -> bool:
    section: type[BaseModel] | None = model
    for position, part in enumerate(path):
        field = _field(section, part)
        if field is None:
            return False
        if is_secret(field.annotation):
            return position == len(path) - 1
        section = _model_in(field.annotation)[0]
    return False


def _field(model: type[BaseModel] | None, key: str | int) -> FieldInfo | None:
    fields = {} if model is None else model.model_fields
    return next((field for name, field in fields.items() if (field.alias or name) == key), None)


def _must_be(kind: str, value: object) -> str:
    hint = ""
    if isinstance(value, Unclear):
        hint = f"; YAML reads it as {value.plain}: write the number plainly"
    elif kind == "text" and not isinstance(value, dict | list | None):
        hint = "; put it in quotes" if not isinstance(value, bool) else '; put the word in quotes, as in "no"'
    elif kind == "a list" and isinstance(value, str | int | float) and len(str(value)) <= 60:
        hint = f"; write [{value}]"
    elif isinstance(value, str) and _UNQUOTED.fullmatch(value):
        hint = "; take off its quotes"
    return f"must be {kind}, not {described(value)}{hint}"


def _keys_in(data: Mapping[str, Any], path: KeyPath) -> Collection[str]:
    value: Any = data
    for part in path:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return ()
    return value.keys() if isinstance(value, Mapping) else ()


def kind_faults(
    target: BaseModel, kind: str, required: Collection[str], optional: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Keys that a target of this kind lacks, or that its kind does not have: name and message."""
    names = {name: field.alias or name for name, field in type(target).model_fields.items()}
    a_kind = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    for name in required:
        if getattr(target, name) is None:
            yield names[name], f"is missing; {a_kind} target needs it"
    given = {name for name in target.model_fields_set if getattr(target, name) is not None}
    for name in sorted(given - {"kind", *required, *optional}):
        yield names[name], f"{a_kind} target has no {names[name]}; remove it"
