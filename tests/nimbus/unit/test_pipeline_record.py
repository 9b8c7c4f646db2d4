"""Pipelines as bytes: what is written is read, and sizes are limited."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus import pipeline_record
from nimbus.definition.models import MAX_TAGS
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipelines.catalog import Skips
from nimbus.domain.pipelines.pipeline import ParameterSpec, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.wording import REASON_BYTES
from nimbus.records import UnreadableRecordError
from tests.nimbus.definitions import active

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SPEC = PipelineSpec(
    name=PipelineName("p"),
    description="Sums",
    schedule=Schedule(cron="0 * * * *", timezone="UTC"),
    parameters={"month": ParameterSpec(type="integer", default=1, description="which")},
    tasks=tuple(TaskSpec(name=TaskName(f"t{n}"), kind=TaskKind.PYTHON, script="a.py") for n in range(3)),
)
RECORD = active(SPEC, schedule_position=NOW, updated_at=NOW)


def test_a_small_record_says_what_others_need_without_the_definition() -> None:
    data, position = pipeline_record.encode(RECORD), pipeline_record.encode_position(RECORD)

    assert len(data) < 1024
    assert b"t1" not in data
    assert position is not None
    found = pipeline_record.with_position(pipeline_record.decode(data, ""), position, "")
    assert found == RECORD


def test_a_record_keeps_the_releases_that_backfills_need() -> None:
    pinned = replace(RECORD, pinned=(RECORD.published,))

    assert pipeline_record.decode(pipeline_record.encode(pinned), "").pinned == (RECORD.published,)


def test_a_position_keeps_the_fire_times_that_were_skipped_and_is_small() -> None:
    skips = Skips()
    for day in range(100):
        at = NOW + timedelta(days=day)
        skips = skips.with_fires((at, at), "\u4e2d" * 1000, after=None, now=NOW)
    record = replace(RECORD, skips=skips, rewound_from=NOW + timedelta(days=1))

    position = pipeline_record.encode_position(record)

    assert position is not None
    assert len(position) < 16 * 1024
    assert pipeline_record.with_position(RECORD, position, "") == record
    assert pipeline_record.encode(record) == pipeline_record.encode(RECORD), "the position alone has them"


def test_a_position_that_says_nothing_of_skipped_fire_times_is_read() -> None:
    position = b'{"schema":1,"position":"2026-03-01T12:00:00Z"}'

    assert pipeline_record.with_position(RECORD, position, "") == RECORD


def test_a_position_keeps_those_of_schedules_with_names() -> None:
    record = replace(RECORD, positions={"daily": NOW, "monthly": NOW + timedelta(days=1)})
    position = pipeline_record.encode_position(record)

    assert position is not None
    assert pipeline_record.with_position(RECORD, position, "") == record


def test_a_record_is_small_whatever_the_definition() -> None:
    many = {f"parameter_{n}": ParameterSpec(type="string", default="x" * 5000) for n in range(200)}
    tags = tuple(f"{n:t>63}" for n in range(MAX_TAGS))
    schedule = Schedule(cron="0 * * * *", timezone="UTC", parameters={"parameter_1": "x" * 5000})
    large = replace(
        SPEC,
        description="\u4e2d" * 4096,
        parameters=many,
        schedule=schedule,
        tags=tags,
        runbook="r" * REASON_BYTES,
    )

    assert len(pipeline_record.encode(active(large))) < 4096


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"schema":2,"name":"p"}', b'{"schema":1,"name":"p"}', b'{"schema":1}']
)
def test_what_is_no_record_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(UnreadableRecordError, match="/pipelines/p"):
        pipeline_record.decode(data, "/pipelines/p")
    with pytest.raises(UnreadableRecordError, match="/schedules/p"):
        pipeline_record.with_position(RECORD, data, "/schedules/p")
