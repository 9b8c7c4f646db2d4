"""The first page of a list of many runs equals that of all sorted runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from nimbus.api.runs.lookup import _first_places
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.pipeline import Priority
from nimbus.domain.runs.run import ListedRun, RunCause, RunState, place

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DICE = Random(1)


def listed(number: int, created_at: datetime) -> ListedRun:
    return ListedRun(
        id=RunId(f"r{number}"),
        pipeline=PipelineName("p"),
        created_at=created_at,
        state=RunState.RUNNING,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
    )


@pytest.mark.parametrize("span_s", [0.5, 3.0, 1_000.0])
@pytest.mark.parametrize("count", [0, 1, 10, 11, 200])
def test_the_first_places_are_those_of_all_runs_in_order_though_many_share_a_second(
    count: int, span_s: float
) -> None:
    runs: Sequence[ListedRun] = [
        listed(number, NOW + timedelta(seconds=DICE.uniform(0, span_s))) for number in range(count)
    ]

    assert _first_places(runs, 10) == sorted(map(place, runs))[:10]
