"""Reads a calendar: a file of a release, or the text that `nimbus calendar set` sends. It is not trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from nimbus.config.checking import Strict, check
from nimbus.config.document import Document, parse_document
from nimbus.config.problems import InvalidDocumentError, Problem, SuggestingError
from nimbus.config.values import described
from nimbus.definition.faults import KeyFault
from nimbus.domain.pipelines.calendars import MAX_DATES, MAX_DAYS_OFF, Calendar
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.wording import closest

MAX_BYTES = 64 * 1024
"""Limit of a calendar's file."""
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = timedelta(days=1)


def _weekday(value: object) -> int:
    if not isinstance(value, str) or value not in WEEKDAYS:
        raise SuggestingError(
            f"must be one of {', '.join(WEEKDAYS)}, not {described(value)}", closest(str(value), WEEKDAYS)
        )
    return WEEKDAYS.index(value)


def _days(value: object) -> tuple[date, ...]:
    """The days of `2026-12-25`, or of `2026-12-24..2026-12-31`."""
    try:
        first, dots, last = str(value).partition("..")
        start = date.fromisoformat(first)
        end = date.fromisoformat(last) if dots else start
    except ValueError:
        form = "must be a date such as 2026-12-25, or a range such as 2026-12-24..2026-12-31"
        raise SuggestingError(f"{form}, not {described(value)}") from None
    if end < start:
        raise SuggestingError(f"ends before it starts; write {last}..{first}")
    if (end - start).days >= MAX_DATES:
        raise SuggestingError(f"has more than {MAX_DATES} days; a calendar has at most so many")
    return tuple(start + offset * _DAY for offset in range((end - start).days + 1))


_Days = list[Annotated[tuple[date, ...], BeforeValidator(_days)]]


class CalendarKeys(Strict):
    """A calendar's file."""

    weekdays: Annotated[list[Annotated[int, BeforeValidator(_weekday)]], Field(min_length=1)] | None = None
    holidays: _Days = Field(default_factory=list)
    workdays: _Days = Field(default_factory=list)


def parse_calendar(text: bytes, name_for_errors: str) -> Calendar:
    """Read a calendar. Raises InvalidDocumentError: with everything that is wrong, each with its line."""
    if len(text) > MAX_BYTES:
        message = f"a calendar has at most {MAX_BYTES >> 10} KiB"
        raise InvalidDocumentError([Problem(file=name_for_errors, message=message)])
    document = parse_document(text, name_for_errors)
    model, problems = check(CalendarKeys, document)
    if model is None:
        raise InvalidDocumentError(problems)
    weekdays = tuple(sorted(set(model.weekdays or (0, 1, 2, 3, 4))))
    off = {day for days in model.holidays for day in days if day.weekday() in weekdays}
    on = {day for days in model.workdays for day in days if day.weekday() not in weekdays}
    calendar = Calendar(weekdays=weekdays, exceptions=tuple(sorted(off | on)))
    problems = [document.problem(*fault) for fault in _faults(document, model, calendar)]
    if problems:
        raise InvalidDocumentError(problems)
    return calendar


def _faults(document: Document, model: CalendarKeys, calendar: Calendar) -> Iterator[KeyFault]:
    if model.weekdays is None and not model.holidays and not model.workdays:
        yield KeyFault((), "names no day; write `holidays: [2026-12-25]`, or `weekdays` that are worked")
    if model.weekdays is not None and len(set(model.weekdays)) < len(model.weekdays):
        yield KeyFault(("weekdays",), "names a weekday twice; keep one")
    seen: dict[date, int | None] = {}
    for key, entries in (("holidays", model.holidays), ("workdays", model.workdays)):
        for number, days in enumerate(entries):
            line = document.line_of((key, number))
            if (twice := next((day for day in days if day in seen), None)) is not None:
                yield KeyFault(
                    (key, number), f"{twice} is here twice (first on line {seen[twice]}); keep one"
                )
            seen |= {day: line for day in days if day not in seen}
    if len(seen) > MAX_DATES:
        yield KeyFault(("holidays",), f"{len(seen)} dates are more than {MAX_DATES}: remove old ones")
    elif (start := calendar.stretch_off()) is not None:
        yield KeyFault(("holidays",), f"no day is worked from {start} on for more than {MAX_DAYS_OFF} days")


def calendar_file(name: str) -> str:
    """Where a release keeps a calendar, relative to its folder."""
    return f"calendars/{name}.yaml"


def with_calendars(spec: PipelineSpec, folder: Path, shown: str) -> PipelineSpec:
    """The definition with the calendars that are files beside it; the others are the cluster's.

    `shown`: the folder's name in messages. Raises InvalidDocumentError: a file is no calendar; with each
    fault and its line.
    """
    problems: list[Problem] = []
    known: dict[str, Calendar | None] = {}
    for name in _names(spec):
        file = calendar_file(name)
        try:
            with (folder / file).open("rb") as opened:
                known[name] = parse_calendar(opened.read(MAX_BYTES + 1), f"{shown}/{file}")
        except FileNotFoundError:
            known[name] = None
        except OSError as exc:
            problems.append(
                Problem(file=f"{shown}/{file}", message=f"the file cannot be read: {exc.strerror}")
            )
        except InvalidDocumentError as exc:
            problems += exc.problems
    if problems:
        raise InvalidDocumentError(problems)
    if not any(known.values()):
        return spec
    return spec.with_days(known.get, of_release=True)


def _names(spec: PipelineSpec) -> Iterable[str]:
    return sorted({schedule.calendar for schedule in spec.schedules if schedule.calendar is not None})
