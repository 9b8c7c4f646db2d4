"""Fire times of schedules: Debian's cron rules in a named time zone. Pure.

If a schedule names its minutes and hours, no fire time is lost or doubled when clocks change: a fire time in
a missing hour happens right after it, a fire time in a repeated hour only the first time. With `*` for
minutes or hours, a schedule follows the clock of the zone. Source: Debian's cron(8). The library cronsim
follows it, except for changes of half an hour.

A calendar leaves out fire times or moves them to other days. Those that are moved to one moment are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from nimbus.config.problems import SuggestingError
from nimbus.domain.pipelines.calendars import Calendar, OnHolidays
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.wording import closest

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST = 200
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_FORMS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L for the last day",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday), or SUN to SAT",
}
_LOCAL = re.compile(r"localtime|Factory|posixrules|(posix|right)/")
"""Names in time zone folders that are no zone, or not the same zone on every host."""
_PROBE = datetime(2024, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_MAX_LEFT_OUT = 1000
"""How many days with fire times that the calendar leaves out, in a row, end the search."""


def expanded(cron: str) -> str:
    """The five fields of an alias such as `@daily`; any other text unchanged."""
    return ALIASES.get(cron.strip().lower(), cron.strip())


def check_cron(text: str) -> None:
    """Check a cron expression.

    Raises SuggestingError: a field is wrong, with its allowed values; or the schedule would never fire.
    """
    if text.strip().startswith("@") and expanded(text) not in ALIASES.values():
        raise SuggestingError(
            f"{text!r} is not a known alias; known: {', '.join(ALIASES)}", closest(text, ALIASES)
        )
    fields = expanded(text).upper().split()
    if len(fields) != len(_FIELDS) or len(text) > _LONGEST:
        raise SuggestingError(
            f"{text[:60]!r} has {len(fields)} fields; a schedule has five: "
            f"minute, hour, day of month, month, day of week"
        )
    for position, name in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[position] = fields[position]
        try:
            CronSim(" ".join(alone), _PROBE)
        except (CronSimError, ValueError, AssertionError) as exc:
            raise SuggestingError(
                f"{fields[position]!r} is not a valid {name}: {_FORMS[name]}, with * , - and /"
            ) from exc
    try:
        next(CronSim(" ".join(fields), _PROBE))
    except (CronSimError, StopIteration) as exc:
        raise SuggestingError(f"{text!r} never fires: no month has such a day") from exc


def check_timezone(name: str) -> None:
    """Check the name of a time zone. Raises SuggestingError: it is not a time zone; with the closest name."""
    try:
        ZoneInfo("" if _LOCAL.match(name) else name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        known = {zone for zone in available_timezones() if not _LOCAL.match(zone)}
        by_city = {zone.rpartition("/")[2]: zone for zone in sorted(known) if "/" in zone}
        city = closest(name.rpartition("/")[2], by_city)
        near = closest(name, known) or (None if city is None else by_city[city])
        raise SuggestingError(
            f"{name!r} is not a time zone; use an IANA name such as Europe/Berlin or UTC", near
        ) from exc


@lru_cache(maxsize=4096)
def next_fire(schedule: Schedule, after: datetime) -> datetime | None:
    """The first fire time later than `after` (aware), in UTC; None if there is none."""
    return next(fires_after(schedule, after), None)


def fires_between(schedule: Schedule, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """Fire times after `after` and up to `until` (both aware), in UTC, oldest first, at most `limit`."""
    first = next_fire(schedule, after)
    if first is None or first > until:
        return ()
    second = next_fire(schedule, first)  # kept for the next call, which begins there
    if second is None or second > until:
        return (first,)
    return tuple(islice(takewhile(lambda fire: fire <= until, fires_after(schedule, after)), limit))


def fires_after(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """Each fire time after `after` (aware) once, in UTC, in order."""
    try:
        if (days := schedule.days) is None:
            yield from _of_cron(schedule, after)
        elif schedule.working_day is None and schedule.on_holidays is not OnHolidays.SKIP:
            yield from _moved(schedule, days, after.astimezone(UTC))
        else:
            yield from _left_over(schedule, days, after)
    except (CronSimError, OverflowError):  # an expression that never fires, or the end of all dates
        return


def names_its_times(cron: str) -> bool:
    """True when a schedule names its minutes and hours."""
    return not any(field.startswith("*") for field in expanded(cron).split()[:2])


def _of_cron(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    find = _by_name if names_its_times(schedule.cron) else _by_clock
    return find(expanded(schedule.cron), ZoneInfo(schedule.timezone), after.astimezone(UTC))


def _left_over(schedule: Schedule, days: Calendar, after: datetime) -> Iterator[datetime]:
    """Fire times on working days, or on one working day of each month."""
    zone, number, left_out = ZoneInfo(schedule.timezone), schedule.working_day, 0
    fires = _of_cron(schedule, after)
    while (fire := next(fires, None)) is not None and left_out < _MAX_LEFT_OUT:
        day = fire.astimezone(zone).date()
        open_day = days.next_working(day) if number is None else days.next_numbered(day, number)
        if open_day is None:
            return
        if open_day == day:
            left_out = 0
            yield fire
        else:
            left_out += 1
            midnight = datetime.combine(open_day, time(), zone).astimezone(UTC)
            fires = _of_cron(schedule, midnight - _MICROSECOND)


def _moved(schedule: Schedule, days: Calendar, after: datetime) -> Iterator[datetime]:
    """Fire times, of which those on other days are moved to working days.

    The times are local until their day is known, because clocks change on Sundays: a time that a Sunday
    lacks must not look like another one on Monday.
    """
    zone, last = ZoneInfo(schedule.timezone), after
    start = days.last_working(after.astimezone(zone).date() - _DAY)
    times = CronSim(expanded(schedule.cron), datetime.combine(start, time()) - _MICROSECOND)
    shown = next(times, None)
    while shown is not None:
        day = shown.date()
        if schedule.on_holidays is OnHolidays.AFTER:
            target = until = days.next_working(day)
        else:
            target, until = days.last_working(day), days.next_working(day + _DAY) - _DAY
        moments = set()
        while shown is not None and shown.date() <= until:
            moments.add(_named(target, shown.time(), zone))
            shown = next(times, None)
        for fire in sorted(moments):
            if fire > last:
                last = fire
                yield fire


def _named(day: date, at: time, zone: ZoneInfo) -> datetime:
    """A local time in UTC: in a missing hour its end, in a repeated one the first."""
    shown = datetime.combine(day, at)
    moment = shown.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == shown:
        return moment
    return _first_change(zone, moment - 2 * _DAY, moment) or moment


def _by_name(fields: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Fire times of a schedule that names its minutes and hours.

    cronsim works on local time. If it starts inside a repeated hour, it returns the first of the two, which
    has passed. For two fire times in a missing hour it returns the hour's end twice. Both would be a second
    run.
    """
    last = after
    for fire in CronSim(fields, after.astimezone(zone)):
        utc = fire.astimezone(UTC)
        if utc > last:
            last = utc
            yield utc


def _by_clock(fields: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Fire times of a schedule with `*`: whenever the clock of the zone shows a matching time.

    cronsim goes from hour to hour, and misses fire times where clocks change by half an hour. So it is called
    for one period without a clock change after the other.
    """
    known = start = after
    while True:
        offset = _offset(zone, known)
        for shown in CronSim(fields, start + offset):
            fire = shown - offset
            change = _first_change(zone, known, fire)
            if change is not None:
                known, start = change, change - timedelta(seconds=1)
                break
            known = fire
            yield fire
        else:
            return


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _first_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first second after `after`, up to `until`, with another offset of the zone; None: there is none."""
    offset, low = _offset(zone, after), after.replace(microsecond=0)
    while low < until:
        high = min(low + timedelta(days=1), until)
        if _offset(zone, high) != offset:
            while high - low > timedelta(seconds=1):
                middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            return high
        low = high
    return None
