"""The fields of the form that starts a run, with the defaults of the pipeline's parameters. Pure.

The prefix of a field's name decides how its text becomes a value: `json.x` is parsed as JSON, `text.x` is
used unchanged, `some.x` is used unchanged unless it is empty. A missing value gets the default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nimbus.domain.pipeline import ParameterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field."""

    parameter: str
    name: str
    value: str
    options: Sequence[tuple[str, str]]
    """Values of a choice, each with its label; empty: any text."""
    required: bool
    hint: str
    number: bool
    minimum: float | None
    maximum: float | None


def fields(parameters: Mapping[str, ParameterSpec], given: Mapping[str, Any]) -> list[Field]:
    """The fields of a form, in the order of the definition. `given`: values instead of defaults, by name."""
    return [
        _field(name, parameter, given.get(name, parameter.default)) for name, parameter in parameters.items()
    ]


def _field(name: str, parameter: ParameterSpec, value: Any) -> Field:
    is_list = parameter.type == "list"  # its choices are those of its values
    choices = [] if is_list else parameter.choices or ([True, False] if parameter.type == "boolean" else [])
    is_text = parameter.type == "string" and not choices
    kind = "json" if not is_text else "some" if parameter.default is None else "text"
    shown = "" if value is None else str(value) if is_text else _text(value)
    return Field(
        parameter=name,
        name=f"{kind}.{name}",
        value=shown,
        options=[(_text(choice), choice if isinstance(choice, str) else _text(choice)) for choice in choices],
        required=parameter.required,
        hint=" ".join(filter(None, (parameter.description, 'a JSON list, such as ["a", "b"]' * is_list))),
        number=parameter.type in ("integer", "number"),
        minimum=parameter.minimum,
        maximum=parameter.maximum,
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
