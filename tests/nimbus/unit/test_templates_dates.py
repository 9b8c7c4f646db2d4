"""Dates in templates: the calendar of the schedule's zone, in arguments and in SQL files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nimbus.domain.pipelines.intervals import local
from nimbus.templates.dates import date_values
from nimbus.templates.evaluation import Budget
from nimbus.templates.names import DATES, TemplateError, names_in
from nimbus.templates.rendering import Renderer

BERLIN = ZoneInfo("Europe/Berlin")


def values(day: str = "2026-03-30T06:00", start: str = "2026-03-29T06:00") -> dict[str, Any]:
    logical, begin = (
        local(datetime.fromisoformat(text).replace(tzinfo=BERLIN), BERLIN) for text in (day, start)
    )
    return date_values(logical, (begin, logical), BERLIN.key)


def rendered(text: str, context: dict[str, Any] | None = None) -> str:
    return Renderer().render(text, values() if context is None else context, Budget(0))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{{ logical_date }} {{ ds }} {{ tz }}", "2026-03-30 06:00:00+02:00 2026-03-30 Europe/Berlin"),
        (
            "{{ data_interval_start }} {{ data_interval_end }}",
            "2026-03-29 06:00:00+02:00 2026-03-30 06:00:00+02:00",
        ),
        # the same local time, with the zone's offset of that day
        ("{{ days(logical_date, -1) }}", "2026-03-29 06:00:00+02:00"),
        ("{{ days(logical_date, -2) }}", "2026-03-28 06:00:00+01:00"),
        ("{{ days('2026-03-29T00:30:00+00:00', 0) }}", "2026-03-29 01:30:00+01:00"),
        # 02:30 on 29 March does not exist
        ("{{ days('2026-03-28T02:30:00+01:00', 1) }}", "2026-03-29 03:30:00+02:00"),
        ("{{ months(logical_date, -1) }}", "2026-02-28 06:00:00+01:00"),
        ("{{ months('2026-01-31', 1) }} {{ months('2026-01-31', -14) }}", "2026-02-28 2024-11-30"),
        ("{{ months('2024-01-31', 1) }} {{ months('2026-12-15', 1) }}", "2024-02-29 2027-01-15"),
        ("{{ month_start(logical_date) }}", "2026-03-01 00:00:00+01:00"),
        (
            "{{ month_end(logical_date) }} {{ month_end('2024-02-03') }}",
            "2026-03-31 00:00:00+02:00 2024-02-29",
        ),
        (
            "{{ week_start(logical_date) }} {{ week_start('2026-03-29') }}",
            "2026-03-30 00:00:00+02:00 2026-03-23",
        ),
        ("{{ fmt(days(logical_date, -1), '%Y%m%d') }}", "20260329"),
        ("{{ fmt(months(logical_date, -1), '%Y%m') }}", "202602"),
        ("{{ fmt('2026-03-31T23:30:00+00:00', '%d.%m. %H:%M') }}", "01.04. 01:30"),
        ("{{ fmt(ds, '%j') }} {{ days(ds, -7) }}", "089 2026-03-23"),
        ("{{ fmt(month_end(months(logical_date, -1)), '%d') }}", "28"),
        ("{{ data_interval_end - data_interval_start }}", "1 day, 0:00:00"),
    ],
)
def test_dates_are_counted_on_the_calendar_of_the_zone(text: str, result: str) -> None:
    assert rendered(text) == result


def test_interval_over_a_change_of_clocks_has_23_or_25_hours() -> None:
    spring = values("2026-03-29T06:00", "2026-03-28T06:00")
    autumn = values("2026-10-25T06:00", "2026-10-24T06:00")

    length = "{{ data_interval_end - data_interval_start }}"

    assert (rendered(length, spring), rendered(length, autumn)) == ("23:00:00", "1 day, 1:00:00")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ days(logical_date, 1.5) }}", "no whole number"),
        ("{{ days(logical_date, 10 ** 9) }}", "cannot be rendered"),
        ("{{ months(logical_date, 10 ** 9) }}", "cannot be rendered"),
        ("{{ days('yesterday', 1) }}", "cannot be rendered"),
        ("{{ days(7, 1) }}", "neither a date"),
        ("{{ fmt(logical_date, '%100000000Y') }}", "width"),
        ("{{ fmt(logical_date, '%Y' * 9000) }}", "1024 characters"),
        ("{{ days.__self__ }}", "unsafe"),
    ],
)
def test_what_is_no_date_or_costly_is_refused(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        rendered(text)


@pytest.mark.parametrize("name", ["data_interval_start", "data_interval_end"])
def test_template_that_names_the_interval_of_a_run_without_one_is_refused_with_a_hint(name: str) -> None:
    without = date_values(datetime(2026, 3, 1, tzinfo=UTC), None, "UTC")

    with pytest.raises(TemplateError, match="--data-interval FROM TO"):
        rendered("{{ " + name + " }}", without)
    with pytest.raises(TemplateError, match="--data-interval FROM TO"):
        rendered("{{ days(" + name + ", 1) }}", without)
    assert rendered("{% if " + name + " is defined %}x{% else %}all{% endif %}", without) == "all"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("days logical_date", set()),
        ("--days={{ params.days }} {{ run.logical_date }}", set()),
        ("{{ days(logical_date, -1) }}", {"days", "logical_date"}),
        ("{% if tz == 'UTC' %}a{% endif %}\n{{\nfmt(ds) }}", {"tz", "fmt"}),
        ("{{ f(days=1) }}", set()),
        ("{{ params.x or 'days' }} {{ f(\"tz\") }}", set()),
    ],
)
def test_new_names_are_found_in_code_of_templates_alone(text: str, names: set[str]) -> None:
    assert names_in(text) & (set(DATES) - {"ds", "ds_nodash"}) == names
