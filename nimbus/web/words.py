"""Formats values and cron expressions for pages. Pure."""

from __future__ import annotations

import json

from markupsafe import Markup, escape


def as_json(value: object) -> str:
    """A value in the form of definitions and commands."""
    return json.dumps(value, ensure_ascii=False, default=str)


def with_code(text: str) -> Markup:
    """A message in which text between backticks, such as commands and keys, is shown as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAMES = {name[:3].lower(): number for number, name in enumerate(_DAYS[:7])}
_MINUTES, _HOURS = 60, 24


def cron_in_words(cron: str) -> str | None:
    """A description such as `Monday to Friday at 06:30`; None: there is no simple one."""
    parts = cron.split()
    if len(parts) != 5 or parts[3] != "*":
        return None
    minute, hour, day, _, weekday = parts
    days, times = _days(day, weekday), _times(minute, hour)
    if days is None or times is None:
        return None
    if times.startswith("at "):
        return f"{days or 'daily'} {times}"
    return f"{times}, {days}" if days else times


def _times(minute: str, hour: str) -> str | None:
    if (every := _step(minute, _MINUTES)) is not None and hour == "*":
        return "every minute" if every == 1 else f"every {every} minutes"
    at = _number(minute, _MINUTES - 1)
    if at is None:
        return None
    if (every := _step(hour, _HOURS)) is not None:
        return f"every hour at minute {at}" if every == 1 else f"every {every} hours at minute {at}"
    hours = [_number(text, _HOURS - 1) for text in hour.split(",")]
    if None in hours:
        return None
    return "at " + ", ".join(f"{hour:02d}:{at:02d}" for hour in hours)


def _days(day: str, weekday: str) -> str | None:
    """Days in words; empty: every day; None: not simple. With both fields set, cron fires on either."""
    if weekday == "*":
        if day == "*":
            return ""
        at = _number(day, 31)
        return f"on day {at} of each month" if at else None
    if day != "*":
        return None
    first, dash, last = weekday.partition("-")
    if dash:
        ends = (_weekday(first), _weekday(last))
        if ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
            return None
        return f"{_DAYS[ends[0]]} to {_DAYS[ends[1]]}"
    numbers = [_weekday(text) for text in weekday.split(",")]
    return None if None in numbers else ", ".join(_DAYS[number] for number in numbers if number is not None)


def _step(field: str, whole: int) -> int | None:
    """N of `*/N` if it divides `whole` evenly; 1 for `*`; else None."""
    if field == "*":
        return 1
    step = _number(field[2:], whole) if field.startswith("*/") else None
    return step if step and whole % step == 0 and step < whole else None


def _weekday(text: str) -> int | None:
    number = _NAMES.get(text.lower())
    return _number(text, 7) if number is None else number


def _number(text: str, most: int) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 3 and int(text) <= most else None
