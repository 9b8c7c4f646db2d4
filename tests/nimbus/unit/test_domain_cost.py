"""What attempts used: which figures are accepted, how they are told, and how they are counted."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nimbus.cli.run.rows import cost_rows
from nimbus.domain.attempts.cost import LARGEST, Cost, cost_in_words, cost_of
from nimbus.telemetry.engine import EngineMetrics
from tests.nimbus.unit.test_spark_application import a_run, closed


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (None, None),
        ("fast", None),
        ({}, None),
        ({"more": 1}, None),
        ({"cpu_ms": 5, "more": 1}, Cost(cpu_ms=5)),
        ({"cpu_ms": -1, "spill_bytes": True, "task_ms": 1.5, "peak_memory_bytes": LARGEST + 1}, None),
        ({"cpu_ms": 0, "task_ms": LARGEST}, Cost(cpu_ms=0, task_ms=LARGEST)),
    ],
    ids=repr,
)
def test_figures_of_a_report_are_taken_if_they_can_be_figures(told: object, kept: Cost | None) -> None:
    assert cost_of(told) == kept


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"cpu_ms": 12, "peak_memory_bytes": 24 << 20}, "24.0 MiB peak, 12 ms CPU"),
        (
            {
                "cpu_ms": 34_000,
                "peak_memory_bytes": 5 << 28,
                "task_ms": 185_000,
                "shuffle_write_bytes": 3 << 29,
                "spill_bytes": 0,
            },
            "1.2 GiB peak, 34 s CPU; Spark: 3 min 5 s task time, 1.5 GiB shuffle, no spill",
        ),
        (
            {"task_ms": 0, "shuffle_write_bytes": 0, "spill_bytes": 1024, "executor_peak_bytes": 1 << 30},
            "Spark: 0 s task time, no shuffle, 1.0 KiB spill, 1.0 GiB peak of an executor",
        ),
    ],
)
def test_cost_is_told_in_words_with_units(figures: dict[str, int], said: str) -> None:
    assert cost_in_words(Cost(**figures)) == said


def test_cost_of_the_last_attempt_of_each_task_has_a_row() -> None:
    def task(name: str, *costs: dict[str, Any] | None) -> dict[str, Any]:
        attempts = [{"number": number, "cost": cost} for number, cost in enumerate(costs, 1)]
        return {"name": name, "attempts": attempts}

    tasks = [task("a", {"cpu_ms": 1}, {"cpu_ms": 2000, "task_ms": None}), task("b", None), task("c")]

    assert cost_rows({"tasks": tasks}) == [("a", 2, "2 s CPU")]


def test_cost_of_an_attempt_is_counted_when_a_decision_closes_it() -> None:
    registry, before = CollectorRegistry(), a_run()
    metrics = EngineMetrics(registry)
    cost = Cost(cpu_ms=1500, peak_memory_bytes=1 << 20, task_ms=2500, shuffle_write_bytes=7, spill_bytes=0)

    after = closed(before, cost=cost)
    metrics.run_moved(before, after)
    metrics.run_moved(after, after)

    def counted(name: str) -> float | None:
        return registry.get_sample_value(f"nimbus_attempt_{name}", {"pipeline": before.pipeline})

    assert counted("cpu_seconds_total") == 1.5
    assert counted("spark_task_seconds_total") == 2.5
    assert counted("spark_shuffle_write_bytes_total") == 7
    assert counted("spark_spill_bytes_total") is None
    assert (counted("peak_memory_bytes_count"), counted("peak_memory_bytes_sum")) == (1, 1 << 20)
