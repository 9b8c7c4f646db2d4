"""Fire times of schedules: Debian's cron rules in a named time zone. Pure.

When clocks go forward, a fire time within the missing hour happens right after it; when they go back, a fire
time in the repeated hour happens once. Source: cronsim's tests against Debian cron.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from nimbus.domain.pipeline import Schedule

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def expanded(cron: str) -> str:
    """The five fields that an alias such as `@daily` stands for; other text as it is."""
    return ALIASES.get(cron.strip().lower(), cron.strip())


@lru_cache(maxsize=4096)
def next_fire(schedule: Schedule, after: datetime) -> datetime | None:
    """The first fire time later than `after` (aware), in UTC; None if there is none."""
    found = fires_between(schedule, after, datetime.max.replace(tzinfo=UTC), 1)
    return found[0] if found else None


def fires_between(schedule: Schedule, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """Fire times later than `after` and not later than `until`, in UTC, oldest first, at most `limit`."""
    try:
        fires = CronSim(expanded(schedule.cron), after.astimezone(ZoneInfo(schedule.timezone)))
        utc = (fire.astimezone(UTC) for fire in fires)
        return tuple(islice(takewhile(lambda fire: fire <= until, utc), limit))
    except (CronSimError, StopIteration):  # an expression that never fires (again)
        return ()
