"""The calendar of a dataset, and the graph of pipelines and datasets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from nimbus.domain.data.publications import Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.web.dataset import MAX_DAYS, days_of, flow
from tests.nimbus.definitions import active

BERLIN = ZoneInfo("Europe/Berlin")


def span(start: datetime, hours: float) -> DataInterval:
    return DataInterval(start=start, end=start + timedelta(hours=hours))


def counts(*spans: DataInterval, known_from: datetime | None = None) -> dict[str, int]:
    days = days_of(spans, BERLIN, known_from)
    return {} if days is None else dict(days.counts)


def test_day_with_23_hours_is_published_in_full() -> None:
    first = datetime(2026, 3, 28, 23, tzinfo=UTC)  # midnight in Berlin, before summer time begins

    assert counts(span(first, 23)) == {"succeeded": 1}
    assert counts(span(first, 22.5)) == {"stopping": 1}
    assert counts(span(first, 23 + 24)) == {"succeeded": 2}


def test_days_between_spans_are_missing() -> None:
    first = datetime(2026, 1, 4, 23, tzinfo=UTC)

    assert counts(span(first, 24), span(first + timedelta(days=3), 12)) == {
        "succeeded": 1,
        "not_run": 2,
        "stopping": 1,
    }
    assert counts(
        span(first, 24), span(first + timedelta(days=3), 24), known_from=first + timedelta(days=2)
    ) == {"not_run": 1, "succeeded": 1}


def test_days_begin_with_intervals_that_begin_at_one_time() -> None:
    first = datetime(2026, 1, 5, 4, tzinfo=UTC)
    daily = [span(first, 72), span(first + timedelta(days=4), 24)]
    found = days_of(daily, BERLIN)
    odd = days_of([*daily, span(first + timedelta(days=6), 3)], BERLIN)

    assert found is not None
    assert odd is not None
    assert (found.begin, dict(found.counts)) == ("05:00", {"succeeded": 4, "not_run": 1})
    assert (odd.begin, odd.counts["stopping"]) == ("", 5)


def test_calendar_has_the_last_days_of_many() -> None:
    assert counts(span(datetime(2020, 1, 1, 23, tzinfo=UTC), 24 * 1096)) == {"succeeded": MAX_DAYS}
    assert counts() == {}


def record(name: str, reads: tuple[str, ...], publishes: tuple[str, ...]) -> PipelineRecord:
    task = TaskSpec(
        name=TaskName("t"),
        kind=TaskKind.PYTHON,
        script="t.py",
        publishes=tuple(Publication(dataset=DatasetName(one)) for one in publishes),
        uses=reads,
    )
    found = tuple(Read(name=one, dataset=DatasetName(one)) for one in reads)
    return active(PipelineSpec(name=PipelineName(name), reads=found, tasks=(task,)))


def test_graph_goes_from_publisher_to_dataset_to_reader() -> None:
    found = flow([record("b", ("orders", "rates"), ()), record("a", (), ("orders",)), record("c", (), ())])

    assert found.needs == {"d-rates": [], "p-a": [], "d-orders": ["p-a"], "p-b": ["d-orders", "d-rates"]}
    assert found.left_out == 0


def test_circle_loses_one_edge() -> None:
    found = flow([record("a", ("cursor",), ("cursor", "orders"))])

    assert found.needs == {"d-cursor": [], "p-a": ["d-cursor"], "d-orders": ["p-a"]}


def test_graph_around_a_node_has_the_nearest_ones() -> None:
    chain = [record(f"p{number}", (f"d{number}",), (f"d{number + 1}",)) for number in range(20)]
    found = flow(chain, "d-d10", most=5)

    assert found.needs.keys() == {"p-p9", "d-d10", "p-p10", "d-d9", "d-d11"}
    assert found.left_out == 41 - 5
    assert flow(chain, "d-none").needs == {}
