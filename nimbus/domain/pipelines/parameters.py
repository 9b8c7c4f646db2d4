"""Parameters of a run: given values are checked against the definition, defaults are added."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nimbus.domain.errors import NimbusError
from nimbus.domain.pipelines.pipeline import ParameterSpec, PipelineSpec

LONGEST_TEXT = 16 * 1024
"""Limit of a text, and of a list as JSON, in characters: parameters are part of a run's record and of command
lines."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_LARGEST_INTEGER = 1 << 63
"""Integers beyond 64 bits are refused: a program that gets them as arguments may not read them."""


class InvalidParametersError(NimbusError):
    """Given parameters do not fit the pipeline. The message lists every problem."""

    code = "invalid_parameters"
    exit_code = 2

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def resolve_parameters(
    spec: PipelineSpec, given: Mapping[str, Any], *, strings: bool = False
) -> Mapping[str, Any]:
    """Every parameter of a run, by name.

    `strings`: True: values are texts from a command line, and are parsed to their types. Raises
    InvalidParametersError: a name is unknown or missing, a type is wrong, or a value is out of bounds.
    """
    problems = []
    resolved: dict[str, Any] = {}
    for name in sorted(given.keys() - spec.parameters.keys(), key=str):
        close = difflib.get_close_matches(str(name), spec.parameters, 1)
        known = f"it has {', '.join(spec.parameters)}" if spec.parameters else "it has none"
        hint = f'did you mean "{close[0]}"?' if close else known
        problems.append(f"pipeline {spec.name} has no parameter {_shown(name)} ({hint})")
    for name, parameter in spec.parameters.items():
        if name not in given:
            if parameter.required:
                problems.append(f"parameter {name!r} is required; give it a value of type {parameter.type}")
            resolved[name] = parameter.default
            continue
        value = given[name]
        if strings and isinstance(value, str):
            value = _parsed(parameter.type, value)
        fault = value_fault(parameter, value)
        if fault is not None:
            problems.append(f"parameter {name!r} {fault}")
        resolved[name] = value
    if problems:
        raise InvalidParametersError(tuple(problems))
    return resolved


def parsed_json(text: str) -> Any:
    """A value from JSON.

    Raises ValueError: it is no JSON. `NaN`, `Infinity` and `1e999`, which Python reads, are none.
    """
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError as exc:
        raise ValueError("it is nested too deep") from exc
    return value


def value_fault(spec: ParameterSpec, value: Any) -> str | None:
    """Why a value does not fit, such as "must be at least 1, not 0". None: it fits."""
    if not has_type(spec.type, value):
        return f"must be of type {spec.type}, not {_shown(value)}"
    if spec.type == "list":
        return _list_fault(replace(spec, type=spec.items), value)
    if isinstance(value, str) and (fault := _text_fault(value)) is not None:
        return fault
    if spec.choices and value not in spec.choices:
        return f"must be one of {', '.join(map(repr, spec.choices))}, not {_shown(value)}"
    if spec.minimum is not None and value < spec.minimum:
        return f"must be at least {_plain(spec.minimum)}, not {_shown(value)}"
    if spec.maximum is not None and value > spec.maximum:
        return f"must be at most {_plain(spec.maximum)}, not {_shown(value)}"
    return None


def has_type(kind: str, value: Any) -> bool:
    """True when a value has the type `kind`. A boolean is no integer; a number is finite."""
    match kind:
        case "integer":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER
        case "number":
            return has_type("integer", value) or (isinstance(value, float) and math.isfinite(value))
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case _:
            return isinstance(value, str)


def _list_fault(item: ParameterSpec, values: list[Any]) -> str | None:
    for index, value in enumerate(values):
        if (fault := value_fault(item, value)) is not None:
            return f"[{index}] {fault}"
    size = len(json.dumps(values))
    if size > LONGEST_TEXT:
        return f"must have at most {LONGEST_TEXT} characters as JSON, not {size}; put a long list into a file"
    return None


def _text_fault(text: str) -> str | None:
    if len(text) > LONGEST_TEXT:
        return f"must have at most {LONGEST_TEXT} characters, not {len(text)}; put a long text into a file"
    if "\0" in text:
        return "contains a null character, which an argument cannot"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "is not valid Unicode"
    return None


def _parsed(kind: str, text: str) -> Any:
    """A command line's text as a value of type `kind`; the text itself if it does not have that form."""
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "list":
        try:
            return parsed_json(text)
        except ValueError:
            return text
    return text


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < _LARGEST_INTEGER else "so large a number"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)
