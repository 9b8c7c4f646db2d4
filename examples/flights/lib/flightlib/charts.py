"""The picture of the report: four charts on one page, drawn by `leather`, a wheel of the release."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import leather
from leather import theme

from flightlib.buckets import WEATHER
from flightlib.figures import FEW, Row

WIDTH, HEIGHT, HEADER = 1280, 1000, 84
INK, BLUE, ORANGE, TEAL, SLATE, PAPER = "#1f2933", "#2f6db5", "#e07b39", "#3a9188", "#6b7a90", "#ffffff"
FACTOR_COLORS = {"visib": BLUE, "precip": TEAL, "wind_speed": SLATE}
FACTOR_LABELS = {"visib": "Visibility {} mi", "precip": "Rain, snow {} in/h", "wind_speed": "Wind {} mph"}


def _set_style() -> None:
    theme.background_color = PAPER
    theme.title_font_family = theme.legend_font_family = "Helvetica, Arial, sans-serif"
    theme.axis_title_font_family = theme.tick_font_family = "Helvetica, Arial, sans-serif"
    theme.title_color, theme.title_font_size, theme.title_gap = INK, 17, 10
    theme.tick_font_size, theme.tick_font_char_width, theme.tick_font_char_height = 12, 6, 12
    theme.axis_title_font_size, theme.axis_title_gap = 12, 14
    theme.label_color = theme.axis_title_color = theme.legend_color = "#52606d"
    theme.tick_color, theme.zero_color = "#e4e7eb", "#9aa5b1"
    theme.legend_font_size, theme.legend_font_char_width = 13, 7
    theme.default_series_colors = [BLUE, ORANGE, TEAL, SLATE]


def hours_chart(hours: Sequence[Row]) -> leather.Chart:
    """Two lines: mean delay at departure and arrival, by hour of the day."""
    chart = leather.Chart("Delay by hour of the day")
    for name, column, color in (
        ("Departure", "mean_dep_delay", BLUE),
        ("Arrival", "mean_arr_delay", ORANGE),
    ):
        points = [(row["hour"], row[column]) for row in hours if row[column] is not None]
        chart.add_line(points, name=name, stroke_color=color, width=3)
    chart.add_x_axis(ticks=list(range(6, 25, 2)), name="Scheduled hour of departure, New York time")
    chart.add_y_axis(name="Mean delay (minutes)")
    return chart


def carriers_chart(carriers: Sequence[Row], mean: float) -> leather.Chart:
    """A bar for each carrier, the latest on top. Carriers above the mean of all have another colour."""
    flown = sorted(
        (row for row in carriers if row["departed"] >= FEW),
        key=lambda row: row["mean_dep_delay"],
        reverse=True,
    )
    chart = leather.Chart("Delay by carrier (orange: above the mean of all)")
    chart.add_bars(
        [(row["mean_dep_delay"], plain_name(row["name"])) for row in flown],
        fill_color=lambda bar: ORANGE if bar.x > mean else BLUE,
    )
    chart.add_x_axis(name="Mean departure delay (minutes)")
    return chart


def distribution_chart(shares: Mapping[str, float]) -> leather.Chart:
    """A column for each range of delay."""
    chart = leather.Chart("How late flights leave")
    chart.add_columns([(label, 100 * share) for label, share in shares.items()], fill_color=TEAL)
    chart.add_x_axis(name="Departure delay (minutes)")
    chart.add_y_axis(name="Share of flights that left (%)")
    return chart


def weather_chart(by_weather: Sequence[Row]) -> leather.Chart:
    """A bar for each range of visibility, precipitation and wind, from bad weather to good."""
    found = {(row["factor"], row["bucket"]): row["mean_dep_delay"] for row in by_weather}
    bars: list[tuple[float, str]] = []
    colors: dict[str, str] = {}
    for factor, kind in WEATHER.items():
        for bucket in kind.labels:
            delay = found.get((factor, bucket))
            if delay is not None:
                label = FACTOR_LABELS[factor].format(bucket)
                bars.append((delay, label))
                colors[label] = FACTOR_COLORS[factor]
    chart = leather.Chart("Delay by weather at departure")
    chart.add_bars(bars, fill_color=lambda bar: colors[bar.y])
    chart.add_x_axis(name="Mean departure delay (minutes)")
    return chart


def plain_name(carrier: str) -> str:
    """A carrier's name without its legal form, so that it fits beside a bar."""
    for ending in (" Inc.", " Co.", " Corporation", " Airlines", " Air Lines"):
        carrier = carrier.removesuffix(ending)
    return carrier


def page(heading: str, subheading: str, charts: Sequence[leather.Chart]) -> str:
    """Lay charts out in two columns under a heading, as one SVG document."""
    root = ET.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=str(WIDTH),
        height=str(HEIGHT),
    )
    ET.SubElement(root, "rect", width="100%", height="100%", fill=PAPER)
    for text, size, y, weight in ((heading, 26, 46, "bold"), (subheading, 15, 72, "normal")):
        style = {"font-size": str(size), "font-weight": weight, "font-family": theme.title_font_family}
        ET.SubElement(root, "text", x="32", y=str(y), fill=INK, **style).text = text
    rows = (len(charts) + 1) // 2
    width, height = WIDTH // 2, (HEIGHT - HEADER) // rows
    for place, chart in enumerate(charts):
        x, y = place % 2 * width, HEADER + place // 2 * height
        cell = ET.SubElement(root, "g", transform=f"translate({x} {y})")
        cell.append(chart.to_svg_group(width, height))
    return ET.tostring(root, encoding="unicode", xml_declaration=False)


def draw(
    heading: str, summary: Mapping[str, Any], shares: Mapping[str, float], tables: Mapping[str, Sequence[Row]]
) -> str:
    """The whole picture.

    Args:
        heading: Subject and time.
        summary: The result of `flightlib.figures.summarize`.
        shares: The result of `flightlib.figures.shares_by_bucket`.
        tables: Rows of the delay tasks, by task.
    """
    _set_style()
    mean, median = (summary["departure_delay"][f"{which}_minutes"] for which in ("mean", "median"))
    subheading = (
        f"{summary['flights']:,} flights, {summary['cancelled']:,} cancelled. "
        f"Departure delay: mean {mean:.1f} minutes, median {median:g} minutes."
    )
    return page(
        heading,
        subheading,
        [
            hours_chart(tables["delays_by_hour"]),
            carriers_chart(tables["delays_by_carrier"], mean),
            distribution_chart(shares),
            weather_chart(tables["delays_by_weather"]),
        ],
    )
