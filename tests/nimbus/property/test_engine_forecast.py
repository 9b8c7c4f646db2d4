"""A forecast against a second calculation, minute by minute, that shares no code but the cron rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.definition.cron import fires_between
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline import Concurrency, Priority, Schedule, WhenFull
from nimbus.engine.forecast import Expected, Fate, Forecast, forecast

AFTER = datetime(2026, 3, 28, 22, 59, tzinfo=UTC)
UNTIL = AFTER + timedelta(hours=8)
MINUTE = timedelta(minutes=1)
CRONS = ["0 * * * *", "*/20 * * * *", "30 2 * * *", "15,45 1-4 * * *"]


@st.composite
def pipelines(draw: st.DrawFn) -> list[Expected]:
    return [
        Expected(
            name=PipelineName(f"p{number}"),
            schedule=Schedule(
                cron=draw(st.sampled_from(CRONS)), timezone=draw(st.sampled_from(["UTC", "Europe/Berlin"]))
            ),
            duration=draw(st.integers(1, 150)) * MINUTE,
            concurrency=draw(
                st.none()
                | st.builds(Concurrency, limit=st.integers(1, 3), when_full=st.sampled_from(WhenFull))
            ),
            priority=draw(st.sampled_from(Priority)),
            position=draw(st.none() | st.integers(0, 300).map(lambda minutes: AFTER + minutes * MINUTE)),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


@dataclass
class Known:
    expected: Expected
    fire: datetime
    place: int
    start: datetime | None = None
    end: datetime | None = None
    fate: Fate = Fate.RUNS

    @property
    def is_open(self) -> bool:
        return self.end is None

    def overlaps(self, now: datetime) -> bool:
        return self.start is not None and self.start <= now and (self.end is None or now < self.end)


def minute_by_minute(found: list[Expected], most: int | None) -> list[Known]:
    fires = sorted(
        (fire, one.name, one)
        for one in found
        for fire in fires_between(one.schedule, one.position or AFTER, UNTIL, 10_000)
    )
    runs: list[Known] = []
    now = AFTER
    while now <= UNTIL or any(run.is_open for run in runs):
        ending = [
            run for run in runs if run.is_open and run.start and run.start + run.expected.duration == now
        ]
        for run in sorted(ending, key=lambda run: run.place):
            run.end = now
        start_all(runs, most, now)
        for _, _, expected in [fire for fire in fires if fire[0] == now]:
            fired(runs, expected, most, now)
            start_all(runs, most, now)
        now += MINUTE
    return runs


def fired(runs: list[Known], expected: Expected, most: int | None, now: datetime) -> None:
    run = Known(expected, now, len(runs))
    runs.append(run)
    mine = [other for other in runs if other.is_open and other.expected is expected and other is not run]
    limit = expected.concurrency
    if limit is None or len(mine) < limit.limit:
        return
    if limit.when_full is WhenFull.SKIP:
        run.end, run.fate = now, Fate.SKIPPED
    elif limit.when_full is WhenFull.REPLACE and not has_room(runs, expected, most):
        queued = [other for other in mine if other.start is None]
        old = (queued or mine)[0]
        old.end, old.fate = now, Fate.REPLACED


def has_room(runs: list[Known], expected: Expected, most: int | None) -> bool:
    running = [run for run in runs if run.is_open and run.start is not None]
    mine = [run for run in running if run.expected is expected]
    full = expected.concurrency is not None and len(mine) >= expected.concurrency.limit
    return not full and (most is None or len(running) < most)


def start_all(runs: list[Known], most: int | None, now: datetime) -> None:
    while True:
        waiting = [
            run for run in runs if run.is_open and run.start is None and has_room(runs, run.expected, most)
        ]
        if not waiting:
            return
        min(waiting, key=lambda run: (run.expected.priority, run.fire, run.place)).start = now


@settings(deadline=None)
@given(found=pipelines(), most=st.none() | st.integers(1, 4))
def test_forecast_is_what_is_counted_minute_by_minute(found: list[Expected], most: int | None) -> None:
    seen = Counter(forecast(found, AFTER, UNTIL, max_running=most))

    assert seen == Counter(
        Forecast(
            run.expected.name, run.fire, run.fate, run.start, None if run.fate is Fate.SKIPPED else run.end
        )
        for run in minute_by_minute(found, most)
    )


@settings(deadline=None)
@given(found=pipelines(), most=st.none() | st.integers(1, 4))
def test_limits_are_never_passed(found: list[Expected], most: int | None) -> None:
    runs = [one for one in forecast(found, AFTER, UNTIL, max_running=most) if one.started_at is not None]
    limits = {one.name: one.concurrency.limit for one in found if one.concurrency is not None}

    for at in {one.started_at for one in runs}:
        assert at is not None
        under_way = [one for one in runs if one.started_at <= at < one.ended_at]  # type: ignore[operator]
        assert most is None or len(under_way) <= most
        for name, count in Counter(one.pipeline for one in under_way).items():
            assert count <= limits.get(name, count)
