"""Daily deadlines, and the fire times that they belong to. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from nimbus.definition.intervals import previous_fire
from nimbus.domain.pipeline import Schedule


def first_after(schedule: Schedule, deadline: time, moment: datetime) -> datetime:
    """The first deadline later than a moment, in UTC."""
    return next(at for at in _around(schedule, deadline, moment) if at > moment)


def last_until(schedule: Schedule, deadline: time, moment: datetime) -> datetime:
    """The last deadline that is not later than a moment, in UTC."""
    return next(at for at in reversed(_around(schedule, deadline, moment)) if at <= moment)


def fire_of(schedule: Schedule, deadline: time, at: datetime) -> datetime | None:
    """The fire time whose run must have succeeded by a deadline: the last one before it.

    None: there was none since the deadline before.
    """
    fire = previous_fire(schedule, at)
    return fire if fire is not None and first_after(schedule, deadline, fire) == at else None


def _around(schedule: Schedule, deadline: time, moment: datetime) -> list[datetime]:
    """The deadlines of the days around a moment, oldest first."""
    zone = ZoneInfo(schedule.timezone)
    day = moment.astimezone(zone).date()
    days = (day + timedelta(days=offset) for offset in range(-2, 3))
    return [datetime.combine(one, deadline, zone).astimezone(UTC) for one in days]
