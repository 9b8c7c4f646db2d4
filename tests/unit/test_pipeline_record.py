"""Pipelines as bytes: records of release 0.1 are read, release 0.1 can read ours, and sizes are limited."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus import pipeline_record
from nimbus.domain.catalog import Definitions, PipelineState, profile_of
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipeline import ParameterSpec, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.skipped import Skips
from nimbus.records import UnreadableRecordError
from tests.definitions import active

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SPEC = PipelineSpec(
    name=PipelineName("p"),
    description="Sums",
    schedule=Schedule(cron="0 * * * *", timezone="UTC"),
    parameters={"month": ParameterSpec(type="integer", default=1, description="which")},
    tasks=tuple(TaskSpec(name=TaskName(f"t{n}"), kind=TaskKind.PYTHON, script="a.py") for n in range(3)),
)
RECORD = active(SPEC, schedule_position=NOW, updated_at=NOW)
OF_0_1 = json.dumps(
    {
        "name": "p",
        "published": RECORD.published,
        "published_spec": {"name": "p", "description": "newer", "tasks": []},
        "release": RECORD.release,
        "schedule_position": "2026-03-01T12:00:00Z",
        "schema": 1,
        "spec": {
            "name": "p",
            "schedule": {"cron": "0 * * * *", "timezone": "UTC", "catchup": "latest"},
            "tasks": [{"name": "a", "kind": "python", "script": "a.py"}],
        },
        "state": "active",
        "updated_at": "2026-03-01T12:00:00Z",
    }
).encode()


def test_a_record_of_release_0_1_is_read_with_its_definitions_and_its_position() -> None:
    found = pipeline_record.decode(OF_0_1, "/pipelines/p")

    assert (found.layout, found.state, found.schedule_position) == (1, PipelineState.ACTIVE, NOW)
    assert found.definitions is not None
    assert found.definitions.active is not None
    assert found.definitions.published.description == "newer"
    assert found.profile == profile_of(found.definitions.active)
    assert (found.profile.schedule, found.profile.tasks) == (SPEC.schedule, 1)


def test_what_release_0_1_reads_is_written_while_the_record_has_its_layout() -> None:
    record = replace(RECORD, definitions=Definitions(SPEC, SPEC))

    body = json.loads(pipeline_record.encode(record))

    assert body.keys() == json.loads(OF_0_1).keys()
    assert (body["schema"], len(body["spec"]["tasks"])) == (1, 3)
    assert pipeline_record.encode_position(record) is None
    assert pipeline_record.decode(pipeline_record.encode(record), "") == record


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
    position = b'{"schema":2,"position":"2026-03-01T12:00:00Z"}'

    assert pipeline_record.with_position(RECORD, position, "") == RECORD


def test_a_record_is_small_whatever_the_definition() -> None:
    many = {f"parameter_{n}": ParameterSpec(type="string", default="x" * 5000) for n in range(200)}
    large = replace(SPEC, description="\u4e2d" * 4096, parameters=many)

    assert len(pipeline_record.encode(active(large))) < 2048


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"schema":3,"name":"p"}', b'{"schema":2,"name":"p"}', b'{"schema":1}']
)
def test_what_is_no_record_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(UnreadableRecordError, match="/pipelines/p"):
        pipeline_record.decode(data, "/pipelines/p")
    with pytest.raises(UnreadableRecordError, match="/schedules/p"):
        pipeline_record.with_position(RECORD, data, "/schedules/p")
