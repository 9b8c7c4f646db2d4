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
    profile = profile_of(spec)
    times, known = _times(profile), _times(record.profile)
    done = {name: at for name, at in record.positions.items() if at > now}  # of schedules that may come back
    for name in ("", *times):
        position = record.positions.get(name, record.schedule_position)
        same = record.state is PipelineState.ACTIVE and known.get(name) == times.get(name)
        done[name] = position if same and position else max(now, position or now)
    return replace(
        record,
        state=PipelineState.ACTIVE,
        release=release.digest,
        profile=profile,
        schedule_position=done.pop(""),
        positions=done,
        updated_at=now,
    )


def rewound(record: PipelineRecord, now: datetime) -> PipelineRecord | None:
    """The record with the position set back to now; None: it is not ahead.

    Fire times between now and the former position may have had their runs. `rewound_from` keeps them from
    having a second one.
    """
    position = record.furthest
    if position is None or position <= now:
        return None
    former = position if record.rewound_from is None else max(position, record.rewound_from)
    return replace(
        record,
        schedule_position=min(now, record.schedule_position or now),
        positions={name: min(now, one) for name, one in record.positions.items()},
        rewound_from=former,
        updated_at=now,
    )


def put(record: PipelineRecord, before: PipelineRecord | None) -> CreatePipeline | PutPipeline:
    """The write that puts `record` into the catalog."""
    return CreatePipeline(record) if before is None else PutPipeline(record, before)


def _times(profile: Profile) -> dict[str, tuple[object, ...]]:
    """The fields that decide the fire times, by schedule. `catchup` only decides about missed ones."""
    return {} if profile.starts_by_data else {one.name: one.times for one in profile.schedules}
