"""A pipeline as two nodes: its record, and the position of its schedule, which each fire advances.

Schedulers watch the records, to sync the releases they name. A fire writes only the position, so that no
watch fires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import TypeAdapter

from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, Profile, Skips
from nimbus.records import RecordCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
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
    named: Mapping[str, datetime] = field(default_factory=dict)
    rewound_from: datetime | None = None
    skips: Skips = Skips()  # noqa: RUF009 - immutable


_BODY: RecordCodec[_Body] = RecordCodec(TypeAdapter(_Body))
_POSITION: RecordCodec[_Position] = RecordCodec(TypeAdapter(_Position))


def encode(record: PipelineRecord) -> bytes:
    """The pipeline's own node. It has less than 4 KiB, and 0.4 KiB and its calendar for each schedule."""
    return _BODY.encode(_Body(**{name: getattr(record, name) for name in _Body.__slots__}))


def encode_position(record: PipelineRecord) -> bytes | None:
    """The position node of the schedule, with the skipped fire times; None if the pipeline has none."""
    if record.schedule_position is None:
        return None
    position = _Position(
        position=record.schedule_position,
        named=record.positions,
        rewound_from=record.rewound_from,
        skips=record.skips,
    )
    return _POSITION.encode(position)


def decode(data: bytes, place: str) -> PipelineRecord:
    """Read a pipeline from its own node, without the position.

    Raises UnreadableRecordError: `data` is no pipeline, or of a newer schema.
    """
    body = _BODY.decode(data, place)
    return PipelineRecord(**{name: getattr(body, name) for name in _Body.__slots__})


def with_position(record: PipelineRecord, data: bytes | None, place: str) -> PipelineRecord:
    """The record with the position from the position node.

    Raises UnreadableRecordError: `data` is no position, or of a newer schema.
    """
    if data is None:
        return record
    position = _POSITION.decode(data, place)
    return replace(
        record,
        schedule_position=position.position,
        positions=position.named,
        rewound_from=position.rewound_from,
        skips=position.skips,
    )
