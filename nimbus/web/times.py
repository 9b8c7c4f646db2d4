"""Times on pages: absolute, in the zone that the reader has chosen. Scripts add how long ago that was.

A page itself must not change with time, or it would be sent again and again. Without a choice, times are in
the time zone of the pipeline that they are about, and in UTC if they are about none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape
from starlette.requests import Request

from nimbus.definition.cron import expanded
from nimbus.domain.data.publications import interval_in
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Scheduled
from nimbus.domain.wording import format_span

CHOICE = "times"
"""The query parameter, and the end of the cookie's name."""
COOKIE = f"nimbus_{CHOICE}"
PIPELINES = "pipeline"
_LONGEST_NAME = 64
_TIME = Markup('<time{} datetime="{}">{}</time>')
_NONE = Markup("&ndash;")


@dataclass(frozen=True, slots=True)
class DateZone:
    """How the data dates of a pipeline are named."""

    zone: tzinfo = UTC
    daily: tuple[int, int] | None = (0, 0)
    """Hour and minute of its fires, of which a day has one at most: a date is enough to name one.

    None: a day has several, so each is named with its time.
    """


def date_zone(of: Scheduled | None) -> DateZone:
    """The zone of a pipeline's schedule."""
    if of is None or of.schedule is None:
        return DateZone()
    clocks = {tuple(expanded(schedule.cron).split()[:2]) for schedule in of.schedules}
    minute, hour = clocks.pop()
    is_daily = not clocks and minute.isdigit() and hour.isdigit()
    return DateZone(ZoneInfo(of.schedule.timezone), (int(hour), int(minute)) if is_daily else None)


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one page."""

    chosen: str
    """`pipeline`, or an IANA name."""
    of: Callable[[str], DateZone] = lambda _: DateZone()
    """The zone of a pipeline, by name."""
    about: str | None = None
    """The pipeline that the page is about."""
    asked: bool = False
    """True: the query has the choice."""

    def zone(self, pipeline: str | None = None) -> tzinfo:
        """The zone of times about a pipeline. None: the one that the page is about."""
        return self._own(pipeline).zone if self.chosen == PIPELINES else ZoneInfo(self.chosen)

    def _own(self, pipeline: str | None) -> DateZone:
        name = pipeline or self.about
        return DateZone() if name is None else self.of(name)

    def text(self, at: datetime, pipeline: str | None = None, form: str = "%Y-%m-%d %H:%M") -> str:
        """A time with its zone, such as `2026-11-04 06:30 CET`."""
        zone = self.zone(pipeline)
        local = at.astimezone(zone)
        return f"{local:{form}}Z" if local.tzname() == "UTC" else f"{local:{form} %Z}"

    def date_text(self, at: datetime, pipeline: str | None = None) -> str:
        """A data date: `2026-11-04` if that names it, else with its time."""
        own, zone = self._own(pipeline), self.zone(pipeline)
        local = at.astimezone(zone)
        is_own = own.daily is not None and str(zone) == str(own.zone)
        clocks = {(0, 0), own.daily} if is_own else set()
        whole = (local.hour, local.minute) in clocks and not local.second
        return f"{local:%Y-%m-%d}" if whole else self.text(at, pipeline)


_page: ContextVar[Times] = ContextVar("times", default=Times(PIPELINES))  # noqa: B039 - immutable


def enter(times: Times) -> None:
    """Set the times of the page that is rendered now."""
    _page.set(times)


def choice(request: Request) -> tuple[str, bool]:
    """What the reader has chosen: by the query, else by a cookie. True: by the query.

    A name that is no time zone is ignored.
    """
    for value, asked in ((request.query_params.get(CHOICE), True), (request.cookies.get(COOKIE), False)):
        if value and (value == PIPELINES or _is_zone(value)):
            return value, asked
    return PIPELINES, False


def _is_zone(name: str) -> bool:
    try:
        return len(name) <= _LONGEST_NAME and ZoneInfo(name) is not None
    except (LookupError, ValueError, OSError):
        return False


def moment(at: datetime | None, pipeline: str | None = None, kind: str = "") -> Markup:
    """When something happened; None: a dash. Scripts show what is less than an hour old as `12 min ago`.

    `pipeline`: what it is about; None: what the page is about. `kind`: `ahead`: scripts add the distance;
    `exact`: with seconds, and never relative.
    """
    if at is None:
        return _NONE
    text = _page.get().text(at, pipeline, "%Y-%m-%d %H:%M:%S" if kind == "exact" else "%Y-%m-%d %H:%M")
    return _time(at, text, kind)


def data_date(at: datetime | None, pipeline: str | None = None) -> Markup:
    """A date of data, such as a logical date: never relative. Arguments as of `moment`."""
    return _NONE if at is None else _time(at, _page.get().date_text(at, pipeline), "date")


def data_span(span: DataInterval, pipeline: str | None = None) -> Markup:
    """A data interval."""
    return Markup("{} to {}").format(data_date(span.start, pipeline), data_date(span.end, pipeline))


def partition(name: str, pipeline: str | None = None) -> Markup:
    """The name of a partition: an interval as its dates."""
    span = interval_in(name)
    return escape(name) if span is None else data_span(span, pipeline)


def since(start: datetime | None, end: datetime | None) -> Markup:
    """A duration; without an end, the start, from which scripts count."""
    if start is None:
        return _NONE
    if end is not None:
        return escape(format_span((end - start).total_seconds()))
    return _time(start, f"since {_page.get().text(start, None, '%H:%M:%S')}", "for")


def _time(at: datetime, text: str, kind: str) -> Markup:
    css = Markup(' class="{}"').format(kind) if kind else ""
    return _TIME.format(css, at.astimezone(UTC).isoformat(), text)
