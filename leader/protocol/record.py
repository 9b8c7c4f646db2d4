"""The form of values: `record` for those of this process, `encode` and `decode` for those in nodes.

A node holds JSON with the number of its schema; it is checked field by field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from leader.errors import RecordError

T = TypeVar("T")

SCHEMA = 1
"""Of every record but the epoch."""


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """A dataclass that is never changed: the type checker sees to that.

    One that is frozen takes twice as long to make, since each of its fields is set through a function. A
    hand-over makes some fifty, one after the other, while nobody leads.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def encode(fields: Mapping[str, Any]) -> bytes:
    """Content of a node, with the schema."""
    return json.dumps({"schema": SCHEMA, **fields}, sort_keys=True).encode()


def decode(data: bytes, path: str, *, any_schema: bool = False) -> Mapping[str, Any]:
    """Read a node. RecordError names `path` if it holds no record, or one of another schema."""
    try:
        fields = json.loads(data)
    except ValueError as exc:
        raise RecordError(f"{path} holds no JSON; delete the node if it is not needed") from exc
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or (schema != SCHEMA and not any_schema):
        raise RecordError(
            f"{path} has schema {schema!r}, this release reads {SCHEMA}; upgrade the older side"
        )
    return fields


def field(fields: Mapping[str, Any], name: str, kind: type[T], path: str) -> T:
    """One field of a record. RecordError names `path` if it is not of this very type."""
    value = fields.get(name)
    if type(value) is not kind:  # not isinstance: a bool is an int, and no epoch
        raise RecordError(f"{path}: field {name!r} is {value!r}, wanted {kind.__name__}; delete the node")
    return value
