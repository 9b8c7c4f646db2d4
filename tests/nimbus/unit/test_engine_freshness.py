"""`fresh` of a dataset: raised as `late` once, until newer data are published."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest

from nimbus.domain.commands import RemovePipeline
from nimbus.domain.data.datasets import Dataset, newest_data
from nimbus.domain.data.publications import Change, Partitioning, Publication, Version, interval_text
from nimbus.domain.ids import AttemptId, CommandId, DatasetName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.leader_term import TIDY_EVERY_S
from nimbus.engine.rules import lateness
from nimbus.engine.work_queue import Key
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NAME, NOW
from tests.nimbus.unit.test_engine_alerts import TOLD, AlertBench

ORDERS = DatasetName("orders")
(TASK, *OTHERS) = TOLD.tasks
SPEC = replace(
    TOLD,
    fresh={ORDERS: timedelta(hours=2)},
    tasks=(replace(TASK, publishes=(Publication(dataset=ORDERS),)), *OTHERS),
)
NEVER, OF_NOON = "late.p.orders.oncall", "late.p.orders.20260301t120000.oncall"


def bench_of(spec: PipelineSpec = SPEC, dataset: Dataset | None = None, **changes: object) -> AlertBench:
    bench = AlertBench(spec)
    record = replace(active(spec, updated_at=NOW), **changes)
    known = {} if dataset is None else {dataset.name: dataset}
    bench.cluster.change(pipelines={NAME: record}, datasets=known)
    bench.elect(2)
    bench.decide()
    return bench


def published(*, at: datetime = NOW, interval: DataInterval | None = None) -> Dataset:
    partition = "" if interval is None else interval_text(interval)
    version = Version(
        partition=partition,
        number=1,
        run=RunId("r"),
        task=TaskName("a"),
        source=AttemptId(RunId("r"), TaskName("a"), 1),
        output="r/a/1",
        at=at,
    )
    kind = Partitioning.WHOLE if interval is None else Partitioning.INTERVAL
    return Dataset(name=ORDERS, pipeline=NAME, partition=kind, published=1, versions=(version,))


def later(bench: AlertBench, hours: float, epoch: int | None = None) -> list[str]:
    bench.clocks.pass_s(hours * 3600)
    if epoch is not None:
        bench.elect(epoch)
    bench.decide()
    return sorted(alert for alert in bench.alerts() if alert.startswith("late"))


def test_dataset_is_late_once_when_nothing_newer_was_published() -> None:
    bench = bench_of(dataset=published())
    assert later(bench, 1.99) == []

    assert later(bench, 0.01) == [OF_NOON]
    assert bench.alerts()[OF_NOON].about == (
        "dataset orders is late: its newest data are of 2026-03-01 12:00 UTC, and older than 2h (fresh)"
    )
    bench.answer()
    assert later(bench, 5, epoch=3) == []


def test_dataset_becomes_late_under_the_next_leader() -> None:
    bench = bench_of(dataset=published())
    assert later(bench, 1, epoch=3) == []
    bench.elect(4)

    assert later(bench, 0.99) == []
    assert later(bench, 0.01) == [OF_NOON]


def test_dataset_is_late_when_nobody_led_then() -> None:
    bench = bench_of(dataset=published())

    assert later(bench, 7, epoch=3) == [OF_NOON]


def test_publication_ends_the_lateness_and_begins_another_time() -> None:
    bench = bench_of(dataset=published())
    later(bench, 3)
    bench.play(1, Outcome.SUCCEEDED)
    assert later(bench, 1.9) == [OF_NOON]

    assert later(bench, 0.2) == [OF_NOON, "late.p.orders.20260301t150000.oncall"]


def test_dataset_without_versions_is_late_once_after_its_pipeline_changed() -> None:
    bench = bench_of()
    assert later(bench, 1.99) == []

    assert later(bench, 0.01) == [NEVER]
    assert bench.alerts()[NEVER].about == "dataset orders is late: nothing was published for 2h (fresh)"
    bench.answer()
    record = bench.cluster.world.pipelines[NAME]
    bench.cluster.change(pipelines={NAME: replace(record, updated_at=bench.clocks.now())})
    assert later(bench, 5, epoch=3) == []


def test_dataset_by_interval_is_as_new_as_the_end_of_its_last_interval() -> None:
    interval = DataInterval(start=NOW - timedelta(hours=2), end=NOW - timedelta(hours=1))
    bench = bench_of(dataset=published(interval=interval))
    assert later(bench, 0.99) == []

    assert later(bench, 0.01) == ["late.p.orders.20260301t110000.oncall"]


@pytest.mark.parametrize(("state", "count"), [(PipelineState.PAUSED, 1), (PipelineState.INACTIVE, 0)])
def test_dataset_of_a_pipeline_is_watched_unless_it_is_inactive(state: PipelineState, count: int) -> None:
    bench = bench_of(dataset=published(), state=state)

    assert len(later(bench, 3)) == count


def test_other_limit_raises_nothing_again_for_the_same_data() -> None:
    bench = bench_of(dataset=published())
    later(bench, 3)
    bench.answer()
    record = bench.cluster.world.pipelines[NAME]
    profile = replace(record.profile, fresh={ORDERS: timedelta(hours=3)})
    bench.cluster.change(pipelines={NAME: replace(record, profile=profile)})

    assert later(bench, 2, epoch=3) == []


def test_removed_pipeline_watches_nothing() -> None:
    bench = bench_of(dataset=published(), state=PipelineState.INACTIVE)
    bench.submit(RemovePipeline(pipeline=NAME))
    bench.decide()

    assert NAME not in bench.cluster.world.pipelines
    assert later(bench, 3) == []


def test_dataset_is_watched_again_when_its_rule_has_failed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(lateness, "watch_dataset", Mock(side_effect=ValueError))
        bench = bench_of(dataset=published())
    assert Key("fresh", ORDERS) in bench.term.state.work.parked

    bench.clocks.pass_s(TIDY_EVERY_S)
    bench.term.tend()
    assert later(bench, 2) == [OF_NOON]


def test_withdrawal_makes_nothing_fresh() -> None:
    dataset = published()
    (version,) = dataset.versions
    change = Change(command=CommandId("cmd-1"), by="ann", withdrew=2, restored=1, made_at=version.made_at)
    again = replace(version, number=3, at=NOW + timedelta(hours=5), change=change)

    assert newest_data(replace(dataset, versions=(again,))) == NOW
    assert newest_data(replace(dataset, versions=(replace(again, change=None),))) == again.at
