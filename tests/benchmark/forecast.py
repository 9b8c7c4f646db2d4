"""Measures `nimbus simulate` for 1,000 pipelines with daily crons over a year: `make bench-simulate`.

The floor is cronsim alone, which computes the same fire times.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from cronsim import CronSim

from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline import Concurrency, Schedule, WhenFull
from nimbus.engine.forecast import Expected, forecast

AFTER, UNTIL = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
PIPELINES, MAX_RUNNING, GOAL_S = 1_000, 60, 10.0
LIMITS = [None, *(Concurrency(limit=1, when_full=how) for how in WhenFull)]


def expected(crons: int) -> list[Expected]:
    """Pipelines with `crons` different daily fire times, and with every kind of limit."""
    chance = random.Random(1)
    times = [f"{number % 60} {number * 24 // crons} * * *" for number in range(crons)]
    return [
        Expected(
            name=PipelineName(f"p{number}"),
            schedule=Schedule(cron=times[number % crons], timezone="UTC"),
            duration=timedelta(minutes=chance.randrange(5, 120)),
            concurrency=LIMITS[number % len(LIMITS)],
        )
        for number in range(PIPELINES)
    ]


def foreseen(pipelines: list[Expected]) -> int:
    return sum(1 for _ in forecast(pipelines, AFTER, UNTIL, max_running=MAX_RUNNING))


def cron_alone(pipelines: list[Expected]) -> int:
    """Compute the fire times of each different cron. Returns their number."""
    crons = {one.schedule.cron for one in pipelines}
    return sum(sum(1 for _ in _fires(cron)) for cron in crons)


def _fires(cron: str) -> list[datetime]:
    fires = []
    for fire in CronSim(cron, AFTER):
        if fire > UNTIL:
            break
        fires.append(fire)
    return fires


def cpu_s(work: Callable[[], int]) -> tuple[int, float]:
    begun = time.process_time()
    count = work()
    return count, time.process_time() - begun


def main() -> None:
    for crons in (24, PIPELINES):
        pipelines = expected(crons)
        fires, took_s = cpu_s(partial(foreseen, pipelines))
        _, floor_s = cpu_s(partial(cron_alone, pipelines))
        verdict = "met" if took_s <= GOAL_S else "MISSED"
        sys.stdout.write(
            f"{fires} fire times of {PIPELINES} pipelines, {crons} crons: {took_s:.1f} s of CPU "
            f"(goal {GOAL_S:.0f} s, {verdict}); cronsim alone {floor_s:.1f} s, ratio {took_s / floor_s:.2f}\n"
        )


if __name__ == "__main__":
    main()
