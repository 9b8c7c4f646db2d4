"""The pipelines that must follow a backfill, and their dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nimbus.definition.backfill_dates import awaiting_dates, downstream_of
from nimbus.definition.intervals import dates_between, interval_of
from nimbus.domain.data.publications import Read
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.starts.upstream import gaps
from nimbus.domain.starts.waits import SELF, PipelineWait

ODS, RATES, MART, SHOP, REPORT = (PipelineName(name) for name in ("ods", "rates", "mart", "shop", "report"))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(day: int, hour: int = 0, month: int = 2) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def waiting(
    cron: str | None, *waits: PipelineWait, zone: str = "UTC", length: int | None = None
) -> PipelineSpec:
    interval = None if length is None else timedelta(days=length)
    return PipelineSpec(
        name=MART,
        schedule=None if cron is None else Schedule(cron=cron, timezone=zone, data_interval=interval),
        tasks=(TaskSpec(name=TaskName("there"), kind=TaskKind.WAIT, script="", waits_for=waits),),
    )


def test_pipelines_follow_those_that_they_wait_for() -> None:
    waits: Mapping[PipelineName, tuple[PipelineName, ...]] = {
        MART: (ODS, RATES),
        SHOP: (ODS, MART),
        REPORT: (SHOP, MART),
        RATES: (),
        PipelineName("other"): (RATES,),
    }

    assert downstream_of(ODS, waits) == (MART, SHOP, REPORT)
    assert downstream_of(REPORT, waits) == ()


@pytest.mark.parametrize("waits", [{MART: (ODS, SHOP), SHOP: (MART,)}, {MART: (ODS,), ODS: (MART,)}])
def test_pipelines_that_wait_for_each_other_are_refused(
    waits: Mapping[PipelineName, tuple[PipelineName, ...]],
) -> None:
    with pytest.raises(RefusedError, match="mart") as refused:
        downstream_of(ODS, waits)

    assert refused.value.code == "wait_cycle"


@pytest.mark.parametrize(
    ("spec", "span", "found"),
    [
        # the same days
        (waiting("0 0 * * *", PipelineWait(pipeline=ODS)), (at(3), at(6)), (at(4), at(6))),
        # hours feed a day: the day of which a part is computed again
        (waiting("0 0 * * *", PipelineWait(pipeline=ODS)), (at(3, 5), at(3, 9)), (at(4), at(4))),
        # a day feeds its hours
        (waiting("0 * * * *", PipelineWait(pipeline=ODS)), (at(3), at(4)), (at(3, 1), at(4))),
        # the last seven days: also dates after the range
        (
            waiting("0 0 * * *", PipelineWait(pipeline=ODS, last=timedelta(days=7))),
            (at(3), at(5)),
            (at(4), at(11)),
        ),
        # no later than now
        (
            waiting("0 0 * * *", PipelineWait(pipeline=ODS, last=timedelta(days=7))),
            (at(25), at(26)),
            (at(26), at(1, month=3)),
        ),
        # each Monday, for its Sunday: no part of Tuesday to Thursday
        (waiting("0 0 * * 1", PipelineWait(pipeline=ODS), length=1), (at(3), at(5)), None),
        (waiting("0 0 * * 1", PipelineWait(pipeline=ODS), length=1), (at(3), at(9)), (at(9), at(9))),
        (waiting(None, PipelineWait(pipeline=ODS)), (at(3), at(6)), None),
        (waiting("0 0 * * *", PipelineWait(pipeline=RATES)), (at(3), at(6)), None),
        (waiting("0 0 * * *", PipelineWait(pipeline=SELF)), (at(3), at(6)), None),
    ],
)
def test_dates_are_those_whose_runs_wait_for_a_part(
    spec: PipelineSpec, span: tuple[datetime, datetime], found: tuple[datetime, datetime] | None
) -> None:
    spans = {ODS: DataInterval(start=span[0], end=span[1]), MART: DataInterval(start=at(1), end=at(28))}

    assert awaiting_dates(spec, spans, NOW) == found


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "America/New_York"])
@pytest.mark.parametrize("cron", ["0 6 * * *", "0 */6 * * *", "30 2 * * *", "0 0 * * 1"])
def test_no_run_before_or_after_the_dates_waits_for_a_part(cron: str, zone: str) -> None:
    """During the night in which clocks change."""
    spec = waiting(cron, PipelineWait(pipeline=ODS), zone=zone)
    span = DataInterval(start=at(27, 7, month=3), end=at(31, 5, month=3))
    schedule = spec.schedule
    assert schedule is not None
    dates = awaiting_dates(spec, {ODS: span}, at(30, month=6))
    assert dates is not None

    def waits(date: datetime) -> bool:
        own = interval_of(schedule, date)
        return own is not None and gaps(own, [span]) != (own,)

    near = dates_between(schedule, at(1, month=3), at(30, month=4), 1000)
    assert [date for date in near if waits(date)] == [date for date in near if dates[0] <= date <= dates[1]]


def test_all_waits_count_together() -> None:
    spec = waiting("0 0 * * *", PipelineWait(pipeline=ODS), PipelineWait(pipeline=RATES))
    spans = {ODS: DataInterval(start=at(3), end=at(4)), RATES: DataInterval(start=at(8), end=at(10))}

    assert awaiting_dates(spec, spans, NOW) == (at(4), at(10))


def test_read_by_interval_follows_as_a_wait_for_its_publisher() -> None:
    hours = DatasetName("hours")
    span, publishers = {ODS: DataInterval(start=at(3), end=at(5))}, {hours: ODS}

    def found(**said: Any) -> tuple[datetime, datetime] | None:
        read = Read(name="hours", dataset=hours, **said)
        spec = replace(waiting("0 0 * * *"), reads=(read,))
        return awaiting_dates(spec, span, NOW, publishers)

    assert found() == (at(4), at(5))
    assert found(last=timedelta(days=7)) == (at(4), at(11))
    assert found(latest=True) is None
    assert found(of=TaskName("fan")) is None
    assert (
        awaiting_dates(replace(waiting("0 0 * * *"), reads=(Read(name="x", dataset=hours),)), span, NOW)
        is None
    )
