"""The report as a page of Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flightlib.buckets import WEATHER
from flightlib.figures import Row


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def minutes(value: float | None) -> str:
    """A delay for people."""
    return "–" if value is None else f"{value:.1f}"  # noqa: RUF001 - a dash for "nothing"


def delay_rows(names: Iterable[str], rows: Iterable[Row]) -> list[list[str]]:
    """One line for each group."""
    return [
        [
            name,
            f"{row['flights']:,}",
            f"{row['cancelled']:,}",
            minutes(row["mean_dep_delay"]),
            minutes(row["mean_arr_delay"]),
        ]
        for name, row in zip(names, rows, strict=True)
    ]


HEAD = ("flights", "cancelled", "departure delay, mean min", "arrival delay, mean min")


def weather_section(by_weather: Sequence[Row]) -> str:
    """All factors in one table, each in the order of its scale."""
    found = {(row["factor"], row["bucket"]): row for row in by_weather}
    chosen = [
        (f"{kind.title} ({kind.unit}): {bucket}", found[factor, bucket])
        for factor, kind in WEATHER.items()
        for bucket in kind.labels
        if (factor, bucket) in found
    ]
    return table(("Weather", *HEAD), delay_rows((name for name, _ in chosen), (row for _, row in chosen)))


def page(
    heading: str, late_minutes: int, summary: Mapping[str, Any], tables: Mapping[str, Sequence[Row]]
) -> str:
    """The whole report."""
    departure, arrival = summary["departure_delay"], summary["arrival_delay"]
    matched = summary["matched_share"]
    carriers = sorted(tables["delays_by_carrier"], key=lambda row: row["flights"], reverse=True)
    hours = tables["delays_by_hour"]
    figures = [
        ("Flights", f"{summary['flights']:,}"),
        ("Cancelled", f"{summary['cancelled']:,} ({summary['cancelled_share']:.2%})"),
        (f"Left {late_minutes} minutes late or more", f"{summary['late']:,}"),
        ("Departure delay, mean", f"{minutes(departure['mean_minutes'])} min"),
        ("Departure delay, median", f"{minutes(departure['median_minutes'])} min"),
        ("Arrival delay, mean", f"{minutes(arrival['mean_minutes'])} min"),
        ("Arrival delay, median", f"{minutes(arrival['median_minutes'])} min"),
        ("Matched with weather", f"{matched['weather']:.2%}"),
        ("Matched with a plane", f"{matched['plane']:.2%}"),
        ("Matched with a destination", f"{matched['destination']:.2%}"),
    ]
    sections = [
        f"# {heading}",
        table(("Figure", "Value"), figures),
        "![Delays by hour, carrier, length and weather](report.svg)",
        "## By carrier",
        table(("Carrier", *HEAD), delay_rows((row["name"] for row in carriers), carriers)),
        "## By scheduled hour of departure",
        table(("Hour", *HEAD), delay_rows((f"{row['hour']:02d}:00" for row in hours), hours)),
        "## By weather at departure",
        weather_section(tables["delays_by_weather"]),
    ]
    return "\n\n".join(sections) + "\n"
