"""Samples of all records as bytes, in `unit/stored_records.json`: what a later release must still read.

`python -m tests.nimbus.stored_records` writes them anew: with each change of a record. With `--freeze` it
also keeps them in `unit/released_records` under the version of this release, where they must never be
changed: all later releases read them.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import nimbus
from nimbus import pipeline_record, records, run_record
from nimbus.domain.runs.run import Run, RunHeader
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.records import RecordCodec

COMPRESSED = (f"{run_record.PINS}text", f"{run_record.LISTS}text-0")
"""The nodes of the sample of a run below its own."""
FILE = Path(__file__).parent / "unit" / "stored_records.json"
RELEASED = FILE.with_name("released_records")
"""Samples of each release, in files named as its version."""
_SIMPLE: Mapping[Any, Any] = {
    str: "text",
    int: 7,
    float: 1.5,
    datetime: datetime(2026, 3, 1, 12, tzinfo=UTC),
    timedelta: timedelta(seconds=90),
    date: date(2026, 3, 1),
    Any: 7,
    object: 7,
}


def codecs() -> Iterator[tuple[str, RecordCodec[Any]]]:
    """All codecs of single records, by name."""
    for module in (records, pipeline_record):
        for name, found in vars(module).items():
            if isinstance(found, RecordCodec):
                yield name.strip("_").lower(), found


def samples(codec: RecordCodec[Any]) -> Iterator[Any]:
    """Records with a value in each field; one for each kind of command."""
    made = codec.adapter._type
    unions = [
        (field.name, kind)
        for field in fields(made)
        for kind in _members(typing.get_type_hints(made)[field.name])
        if field.name == "command"
    ]
    for name, kind in unions or [("", None)]:
        yield _sample(made, **({name: _sample(kind)} if name else {}))


def run() -> Run:
    """A run with a value in each field."""
    task: TaskRun = _sample(TaskRun)
    return Run.of(_sample(RunHeader), Tasks([task]))


def stored() -> dict[str, list[str]]:
    """The samples of each kind of record, as they are stored."""
    found = {name: [codec.encode(one).decode() for one in samples(codec)] for name, codec in codecs()}
    nodes = run_record.encode_new(run())
    below = [b64encode(nodes[name]).decode() for name in COMPRESSED]
    return found | {"run": [records.RUN.encode(run()).decode(), nodes[""].decode(), *below]}


def _members(kind: Any) -> tuple[Any, ...]:
    kind = getattr(kind, "__value__", kind)
    if typing.get_origin(kind) is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(one for one in typing.get_args(kind) if one is not types.NoneType)
    return (kind,)


def _sample(kind: Any, **given: Any) -> Any:
    kind = _members(kind)[0]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        filled = {field.name: _field(hints[field.name], field) for field in fields(kind) if field.init}
        return kind(**(filled | given))
    if origin is typing.Literal:
        return args[-1]
    if origin is tuple:
        return tuple(_sample(one) for one in args if one is not Ellipsis)
    if origin in (dict, Mapping):
        return {_sample(args[0]): _sample(args[1])}
    if origin in (set, frozenset):
        return frozenset({_sample(args[0])})
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*(_sample(one) for one in typing.get_type_hints(kind).values()))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    kind = getattr(kind, "__supertype__", kind)
    return _SIMPLE[kind] if kind in _SIMPLE else kind(_sample(kind.__mro__[1]))


def _field(kind: Any, field: Any) -> Any:
    return field.default is not True if _members(kind) == (bool,) else _sample(kind)


def main(words: list[str]) -> None:
    """See the module."""
    text = json.dumps(stored(), indent=1, sort_keys=True) + "\n"
    FILE.write_text(text)
    if words == ["--freeze"]:
        RELEASED.mkdir(exist_ok=True)
        with (RELEASED / f"{nimbus.__version__}.json").open("x") as frozen:
            frozen.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
