"""The time axis of the home page, and what it knows of the last day."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import Run, RunState
from nimbus.ports import RecentRuns, StoreUnavailableError
from nimbus.web.home.day import DAY, Day
from nimbus.web.home.timeline import Axis, head, lane
from tests.nimbus.integration.conftest import World

NOW = datetime(2026, 3, 1, 6, 4, tzinfo=UTC)


class _Ports:
    """A cluster of finished runs that have left ZooKeeper, and a count of the reads of history."""

    def __init__(self, *runs: Run) -> None:
        self.past, self.asked, self.away = runs, 0, False

    def run_list(self) -> dict[str, Any]:
        return {}

    def runs(self, wanted: Any) -> dict[str, Any]:
        return dict.fromkeys(wanted)

    def recent(self, _pipeline: Any, limit: int, *, state: Any, since: datetime) -> RecentRuns:
        self.asked += 1
        if self.away:
            raise StoreUnavailableError("it is away")
        return RecentRuns(tuple(run for run in self.past if state in (None, run.state))[:limit], None)


def _run(number: int, minutes_ago: float, took: float = 3, *, failed: bool = False) -> Run:
    began = NOW - timedelta(minutes=minutes_ago)
    state = RunState.FAILED if failed else RunState.SUCCEEDED
    run = World().failed(f"r{number}")
    ended = began + timedelta(minutes=took)
    return replace(
        run, id=RunId(f"r{number}"), state=state, created_at=began, started_at=began, finished_at=ended
    )


@pytest.mark.parametrize(
    ("hours", "labels"),
    [
        (1, ["05:15", "05:30", "05:45", "06:00", "06:15", "now"]),
        (6, ["01:00", "02:00", "03:00", "04:00", "05:00", "07:00", "now"]),
        (24, ["09:00", "12:00", "15:00", "18:00", "21:00", "Mar 1", "03:00", "09:00", "now"]),
    ],
)
def test_axis_has_round_hours_and_now(hours: int, labels: list[str]) -> None:
    assert re.findall(r"<text[^>]*>([^<]+)<", head(Axis.of(NOW, hours))) == labels


def test_axis_begins_each_day_where_the_chosen_zone_does() -> None:
    drawn = head(Axis.of(NOW, 24, ZoneInfo("Asia/Kolkata")))

    assert re.findall(r"<text[^>]*>([^<]+)<", drawn)[:5] == ["15:00", "18:00", "21:00", "Mar 1", "03:00"]


def test_page_changes_only_with_the_steps_of_the_axis() -> None:
    runs = [_run(1, 30)]
    drawn = [lane(runs, [], Axis.of(NOW + timedelta(minutes=more), 24)) for more in (0, 5, 6)]

    assert drawn[0] == drawn[1] != drawn[2]


def test_lane_draws_few_runs_by_their_times_and_links_those_that_failed() -> None:
    fires = [NOW + timedelta(minutes=10), NOW + timedelta(hours=9)]
    drawn = lane([_run(1, 34, 3), _run(2, 4, 2, failed=True)], fires, Axis(NOW, 1))

    assert '<rect class="succeeded" x="34.67%" width="4.0%" y="6" height="8">' in drawn
    assert '<a href="/ui/runs/r2"><rect class="failed" x="74.67%" width="2.66%" y="2" height="16">' in drawn
    assert drawn.count('class="fire"') == 1
    assert 'aria-label="2 runs, 1 failed"' in drawn


def test_lane_counts_many_runs_in_parts_of_the_axis() -> None:
    drawn = lane([_run(n, 59 - n * 1.2, failed=n == 7) for n in range(48)], [], Axis(NOW, 1))
    counts = re.findall(r"<text[^>]*>([^<]+)<", drawn)

    assert len(counts) == 12
    assert sum(int(text.rpartition("/")[2]) for text in counts) == 48
    assert [text for text in counts if "✕" in text] == ["✕1/4"]


def test_day_reads_history_once_and_drops_what_is_older_than_a_day() -> None:
    ports = _Ports(_run(1, 60), _run(2, 120, failed=True))
    day = Day(ports, ports)  # type: ignore[arg-type]
    day.begin(NOW)
    first = set(day.finished)
    for minute in range(19):
        day.look(NOW + timedelta(minutes=minute))

    assert first == {"r2"}, "the first page shows what failed"
    assert set(day.finished) == {"r1", "r2"}
    assert day.since == NOW - DAY
    assert ports.asked == 2
    ports.past = ()
    day.look(NOW + timedelta(hours=23, minutes=1))
    assert set(day.finished) == {"r1"}
    assert not day.failed


def test_day_says_since_when_it_knows_runs_while_storage_does_not_answer() -> None:
    ports = _Ports(_run(1, 60))
    ports.away = True
    day = Day(ports, ports)  # type: ignore[arg-type]
    day.begin(NOW)
    day.look(NOW)

    assert not day.finished
    assert day.since == NOW - timedelta(hours=1)


def test_load_is_the_most_attempts_at_once_in_each_part() -> None:
    ports = _Ports(_run(1, 60))
    day = Day(ports, ports)  # type: ignore[arg-type]
    day._changes = [
        (NOW + timedelta(minutes=at), change) for at, change in ((-5, 1), (1, 1), (2, -1), (25, 1), (31, -1))
    ]

    assert day.load(NOW, timedelta(minutes=10), 5) == [2, 1, 2, 2, 1]
    assert day.load(NOW - timedelta(hours=1), timedelta(minutes=10), 3) == [0, 0, 0]
