"""The form of records: `record` for values in this process, `encode` and `decode` for content of nodes.

A node contains JSON with the number of its schema. Each field is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from leader.errors import RecordError

T = TypeVar("T")

SCHEMA = 1
"""Schema of every record except the epoch."""

_DELETE = "delete the node if it is not needed"


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a dataclass whose fields are never changed. The type checker enforces that.

    A frozen dataclass takes twice as long to make, since each field is set through a function. A hand-over
    makes about fifty records, one after the other, while there is no leader.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def encode(fields: Mapping[str, Any]) -> bytes:
    """Return the content of a node, with the schema."""
    return json.dumps({"schema": SCHEMA, **fields}, sort_keys=True).encode()


def decode(data: bytes, path: str, *, any_schema: bool = False, remedy: str = _DELETE) -> Mapping[str, Any]:
    """Read a node. RecordError names `path` if it contains no record, or one of another schema.

    `remedy`: what to do about a node that contains no record.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as exc:  # the latter for brackets nested thousands deep
        raise RecordError(f"{path} contains no JSON; {remedy}") from exc
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if isinstance(fields, dict) and (any_schema or schema == SCHEMA):
        return fields
    if schema is None:
        raise RecordError(f"{path} has schema None, so it is no record; {remedy}")
    raise RecordError(f"{path} has schema {schema!r}, this release reads {SCHEMA}; upgrade the older release")


def field(fields: Mapping[str, Any], name: str, kind: type[T], path: str, *, remedy: str = _DELETE) -> T:
    """Return one field of a record. RecordError names `path` if its type is not exactly `kind`."""
    value = fields.get(name)
    if type(value) is not kind:  # not isinstance: a bool is an int, but not an epoch
        raise RecordError(f"{path}: field {name!r} is {value!r}, expected {kind.__name__}; {remedy}")
    return value
