"""Bugs of several schedules of one pipeline, and of their calendars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.definition import cron
from nimbus.domain.pipelines.catalog import PipelineRecord, Profile
from nimbus.domain.pipelines.pipeline import Scheduled
from nimbus.domain.runs.drafts import Draft
from nimbus.engine import state as states
from nimbus.engine.rules import schedules
from nimbus.engine.rules.commands import pipelines as pipeline_commands
from nimbus.engine.rules.commands import settings
from tests.nimbus.simulation.mutant import mutant, replaced


@mutant
def calendar_is_read_at_activation_alone() -> Iterator[None]:
    """A changed calendar has no effect until somebody activates the pipeline again."""
    original = Scheduled.with_days

    def with_days(self: Any, find: Any, *, of_release: bool = False) -> Any:
        return self if isinstance(self, Profile) else original(self, find, of_release=of_release)

    with replaced(Scheduled, with_days=with_days):
        yield


@mutant
def changed_calendar_wakes_nobody() -> Iterator[None]:
    """The leader waits for a fire time of the former calendar."""
    with replaced(states, followers=lambda *_: ()):
        yield


@mutant
def followed_calendar_is_removed() -> Iterator[None]:
    """A schedule that follows it has no days any more."""
    with replaced(settings, followers=lambda *_: ()):
        yield


@mutant
def fire_time_on_a_holiday_stays_there() -> Iterator[None]:
    """It is not moved to the next working day."""
    cron.next_fire.cache_clear()
    try:
        with replaced(cron, _moved=lambda schedule, _days, after: cron._of_cron(schedule, after)):
            yield
    finally:
        cron.next_fire.cache_clear()


@mutant
def schedules_of_a_pipeline_share_one_position() -> Iterator[None]:
    """The fire of one passes over those of the others."""

    def moved(self: Any, _schedule: Any, position: Any) -> Any:
        return replace(self, positions={}, schedule_position=position)

    with replaced(PipelineRecord, moved=moved):
        yield


@mutant
def schedule_with_other_times_fires_the_past() -> Iterator[None]:
    """AF 777: an activation keeps the position of a schedule whose times have changed."""
    original = pipeline_commands._times

    def times(profile: Any) -> Any:
        return dict.fromkeys(original(profile), ())

    with replaced(pipeline_commands, _times=times):
        yield


@mutant
def runs_of_two_schedules_have_one_id() -> Iterator[None]:
    """DS: two schedules that fire at once start one run."""
    original = schedules._draft

    def draft(record: Any, schedule: Any, *args: Any) -> Draft:
        return original(record, replace(schedule, name=""), *args)

    with replaced(schedules, _draft=draft):
        yield
