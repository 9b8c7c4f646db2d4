"""A pipeline as two nodes: its record, and the position of its schedule, which each fire advances.

Schedulers watch the records, to sync the releases they name. A fire writes only the position, so that no
watch fires. In layout 1, which release 0.1 reads, one node holds all of it and two whole definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from nimbus.domain.catalog import Definitions, PipelineRecord, PipelineState, Profile, profile_of
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.skipped import Skips
from nimbus.records import RecordCodec

_SCHEMA_2 = b'{"schema":2,'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body1:
    name: PipelineName
    state: PipelineState
    published: ReleaseDigest
    published_spec: PipelineSpec
    release: ReleaseDigest | None = None
    spec: PipelineSpec | None = None
    schedule_position: datetime | None = None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body2:
    name: PipelineName
    state: PipelineState
    published: ReleaseDigest
    release: ReleaseDigest | None = None
    pinned: tuple[ReleaseDigest, ...] = ()
    profile: Profile
    owner: str | None = None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    position: datetime
    rewound_from: datetime | None = None
    skips: Skips = Skips()  # noqa: RUF009 - immutable


_BODY_1: RecordCodec[_Body1] = RecordCodec(TypeAdapter(_Body1))
_BODY_2: RecordCodec[_Body2] = RecordCodec(TypeAdapter(_Body2), schema=2)
_POSITION: RecordCodec[_Position] = RecordCodec(TypeAdapter(_Position), schema=2)


def encode(record: PipelineRecord) -> bytes:
    """The pipeline's own node. In layout 2 it has less than 2 KiB."""
    found = record.definitions
    if found is not None:
        return _BODY_1.encode(
            _Body1(
                name=record.name,
                state=record.state,
                published=record.published,
                published_spec=found.published,
                release=record.release,
                spec=found.active,
                schedule_position=record.schedule_position,
                updated_at=record.updated_at,
            )
        )
    return _BODY_2.encode(
        _Body2(
            name=record.name,
            state=record.state,
            published=record.published,
            release=record.release,
            pinned=record.pinned,
            profile=record.profile,
            owner=record.owner,
            updated_at=record.updated_at,
        )
    )


def encode_position(record: PipelineRecord) -> bytes | None:
    """The position node of the schedule, with the skipped fire times; None if the pipeline has none."""
    if record.definitions is not None or record.schedule_position is None:
        return None
    position = _Position(
        position=record.schedule_position, rewound_from=record.rewound_from, skips=record.skips
    )
    return _POSITION.encode(position)


def decode(data: bytes, place: str) -> PipelineRecord:
    """Read a pipeline from its own node. This includes the position in layout 1 only.

    Raises:
        UnreadableRecordError: `data` is no pipeline, or of a newer schema.
    """
    if data.startswith(_SCHEMA_2):
        return PipelineRecord(**_fields(_BODY_2.decode(data, place)))
    body = _BODY_1.decode(data, place)
    found = _fields(body)
    published, active = found.pop("published_spec"), found.pop("spec")
    return PipelineRecord(
        **found, profile=profile_of(active or published), definitions=Definitions(published, active)
    )


def with_position(record: PipelineRecord, data: bytes | None, place: str) -> PipelineRecord:
    """The record with the position from the position node.

    Raises:
        UnreadableRecordError: `data` is no position, or of a newer schema.
    """
    if data is None or record.definitions is not None:
        return record
    found = _POSITION.decode(data, place)
    return replace(
        record, schedule_position=found.position, rewound_from=found.rewound_from, skips=found.skips
    )


def _fields(body: _Body1 | _Body2) -> dict[str, Any]:
    return {name: getattr(body, name) for name in body.__slots__}
