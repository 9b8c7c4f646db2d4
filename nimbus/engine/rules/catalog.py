"""Changes of a pipeline's record by commands and schedules."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.domain.catalog import PipelineRecord, PipelineState, Profile, ReleaseOf, profile_of
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.writes import CreatePipeline, PutPipeline


def published(
    before: PipelineRecord | None, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> PipelineRecord:
    """The record with `release` as its newest release."""
    if before is None:
        return PipelineRecord(
            name=release.pipeline,
            state=PipelineState.INACTIVE,
            published=release.digest,
            profile=profile_of(spec),
            updated_at=now,
        )
    return replace(
        before,
        published=release.digest,
        profile=profile_of(spec) if before.release is None else before.profile,
        updated_at=now,
    )


def activated(
    record: PipelineRecord, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> PipelineRecord:
    """The record with `release` active. A new or changed schedule starts now, without missed fire times.

    No fire time is fired twice, although the clock of an earlier leader may have been ahead of ours.
    """
    profile, position = profile_of(spec), record.schedule_position
    same = record.release is not None and _times(record.profile) == _times(profile)
    if record.state is not PipelineState.ACTIVE or not same:
        position = now if position is None else max(now, position)
    return replace(
        record,
        state=PipelineState.ACTIVE,
        release=release.digest,
        profile=profile,
        schedule_position=position or now,
        updated_at=now,
    )


def rewound(record: PipelineRecord, now: datetime) -> PipelineRecord | None:
    """The record with the position set back to now; None: it is not ahead.

    Fire times between now and the former position may have had their runs. `rewound_from` keeps them from
    having a second one.
    """
    position = record.schedule_position
    if position is None or position <= now:
        return None
    former = position if record.rewound_from is None else max(position, record.rewound_from)
    return replace(record, schedule_position=now, rewound_from=former, updated_at=now)


def put(record: PipelineRecord, before: PipelineRecord | None) -> CreatePipeline | PutPipeline:
    """The write that puts `record` into the catalog."""
    return CreatePipeline(record) if before is None else PutPipeline(record, before)


def _times(profile: Profile) -> tuple[str, str] | None:
    """The fields that decide the fire times; None: it has none. `catchup` only decides about missed ones."""
    schedule = None if profile.starts_by_data else profile.schedule
    return None if schedule is None else (schedule.cron, schedule.timezone)
