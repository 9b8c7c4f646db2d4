"""Parameters of a run: given ones checked against the definition, missing ones filled in."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from nimbus.domain.errors import NimbusError
from nimbus.domain.pipeline import ParameterSpec, PipelineSpec


class InvalidParametersError(NimbusError):
    """Given parameters do not fit the pipeline. All that is wrong is in the message."""

    code = "invalid_parameters"
    exit_code = 2

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def resolve_parameters(
    spec: PipelineSpec, given: Mapping[str, Any], *, strings: bool = False
) -> Mapping[str, Any]:
    """Every parameter of a run, by name.

    Args:
        spec: Whose parameters.
        given: By name.
        strings: The values are texts from a command line: parse them to their types.

    Raises:
        InvalidParametersError: unknown names, missing ones, wrong types, values out of bounds.
    """
    problems = []
    resolved: dict[str, Any] = {}
    for name in sorted(given.keys() - spec.parameters.keys()):
        close = difflib.get_close_matches(name, spec.parameters, 1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        problems.append(f"unknown parameter {name!r}{hint}")
    for name, parameter in spec.parameters.items():
        if name not in given:
            if parameter.required:
                problems.append(f"parameter {name!r} is required")
            resolved[name] = parameter.default
            continue
        value, problem = _checked(name, parameter, given[name], strings)
        resolved[name] = value
        problems.extend([problem] if problem else [])
    if problems:
        raise InvalidParametersError(tuple(problems))
    return resolved


def _checked(name: str, spec: ParameterSpec, value: Any, strings: bool) -> tuple[Any, str]:
    if strings and isinstance(value, str):
        try:
            value = _parsed(spec.type, value)
        except ValueError:
            return value, f"parameter {name!r} must be of type {spec.type}, not {value!r}"
    if not _fits(spec.type, value):
        return value, f"parameter {name!r} must be of type {spec.type}, not {value!r}"
    if spec.choices and value not in spec.choices:
        return value, f"parameter {name!r} must be one of {', '.join(map(repr, spec.choices))}, not {value!r}"
    if spec.minimum is not None and value < spec.minimum:
        return value, f"parameter {name!r} must be at least {spec.minimum:g}, not {value!r}"
    if spec.maximum is not None and value > spec.maximum:
        return value, f"parameter {name!r} must be at most {spec.maximum:g}, not {value!r}"
    return value, ""


def _parsed(kind: str, text: str) -> Any:
    match kind:
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "boolean" if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "boolean":
            raise ValueError(text)
        case _:
            return text


def _fits(kind: str, value: Any) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, str)
