"""Backfills of the pipelines that wait for another one: planned by the API, created by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import Result

from nimbus.api.routes import backfill_plan
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Accepted, Partitioning, Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, TaskName
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.starts.waits import PipelineWait
from tests.nimbus.definitions import active

Invoke = Callable[..., Result]
RANGE = ("--from", "2026-02-01", "--to", "2026-02-03")
CREATE = ("backfill", "create", "sums", *RANGE, "--downstream", "--id", "b1")
MORNING = "2026-02-0{}T05:00:00Z"


def waiting(name: str, cron: str | None, *upstream: str) -> PipelineSpec:
    waits = tuple(PipelineWait(pipeline=PipelineName(one)) for one in upstream)
    return PipelineSpec(
        name=PipelineName(name),
        schedule=None if cron is None else Schedule(cron=cron, timezone="Europe/Berlin"),
        tasks=(TaskSpec(name=TaskName("there"), kind=TaskKind.WAIT, script="", waits_for=waits),),
    )


@pytest.fixture(autouse=True)
def _catalog(world: Any) -> None:
    """`mart` waits for `sums`, and `report` for both, each day. `byhand` waits too, but has no schedule."""
    world.cluster.put(
        active(replace(world.spec, schedule=Schedule(cron="0 6 * * *", timezone="Europe/Berlin"))),
        active(waiting("mart", "0 6 * * *", "sums")),
        active(waiting("report", "0 6 * * *", "mart", "sums", "other")),
        active(waiting("byhand", None, "sums")),
        active(waiting("other", "0 6 * * *")),
        active(waiting("draft", "0 6 * * *", "sums"), release=None),
    )


def test_dry_run_shows_what_would_be_backfilled_too_and_creates_nothing(world: Any, nimbus: Invoke) -> None:
    answer = json.loads(nimbus(*CREATE, "--dry-run", "-o", "json").stdout)

    rows = {row["pipeline"]: row for row in answer["downstream"]}
    assert list(rows) == ["byhand", "mart", "report"]
    assert rows["mart"] == {
        "pipeline": "mart",
        "upstream": ["sums"],
        "first": MORNING.format(1),
        "last": MORNING.format(3),
        "total": 3,
        "runs": 3,
        "why": None,
    }
    assert rows["report"]["upstream"] == ["mart", "sums"]
    assert (rows["byhand"]["first"], rows["byhand"]["runs"]) == (None, 0)
    assert "no schedule" in rows["byhand"]["why"]
    shown = nimbus(*CREATE, "--dry-run").stdout
    assert "mart, sums" in shown and "no schedule" in shown
    assert world.reader.commands() == ()


def test_each_pipeline_gets_a_backfill_after_those_it_waits_for(world: Any, nimbus: Invoke) -> None:
    world.deciding, world.health.leading = False, None

    result = nimbus(*CREATE, "--max-parallel", "2", "--reprocess", "failed", "--param", "x=1")

    assert result.exit_code == 6  # there is no leader, so they stay queued
    assert "byhand gets no backfill" in result.stderr
    made = [queued.command for queued in world.reader.commands()]
    assert [(one.pipeline, one.backfill) for one in made] == [
        ("sums", "b1"),
        ("mart", "b1-3"),
        ("report", "b1-4"),
    ]
    assert {(one.request.max_parallel, one.request.reprocess, one.request.total) for one in made} == {
        (2, "failed", 3)
    }
    assert [dict(one.request.parameters) for one in made] == [{"x": 1}, {}, {}]


def test_what_was_created_before_a_refusal_is_told(
    world: Any, nimbus: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, decide = iter([None, ("backfill_overlaps", "wait for its end")]), world.decide_one

    def refuse_the_second(queued: Any) -> Any:
        world.refuse = next(answers)
        return decide(queued)

    monkeypatch.setattr(world, "decide_one", refuse_the_second)

    result = nimbus(*CREATE)

    assert result.exit_code == 4
    assert "created up to b1; to continue after backfill_overlaps, repeat it with --id b1" in result.stderr


def test_all_of_them_are_told_as_json(nimbus: Invoke) -> None:
    answer = json.loads(nimbus(*CREATE, "-o", "json").stdout)

    assert [(one["id"], one["status"]) for one in answer["backfills"]] == [
        ("b1", "accepted"),
        ("b1-3", "accepted"),
        ("b1-4", "accepted"),
    ]


def test_dates_that_would_count_before_they_are_run_again_are_refused(nimbus: Invoke) -> None:
    result = nimbus(*CREATE, "--reprocess", "all")

    assert result.exit_code == 4
    assert "earlier success" in result.stderr


def test_too_many_pipelines_are_refused(nimbus: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_plan, "MAX_DOWNSTREAM", 2)

    result = nimbus(*CREATE)

    assert result.exit_code == 4
    assert "3 pipelines follow sums" in result.stderr


def test_pipelines_that_read_what_it_publishes_by_interval_follow(world: Any, nimbus: Invoke) -> None:
    """`days` reads hours, `weeks` reads days, `codes` is not by interval, `landing` is from outside."""
    daily = Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
    hours, days, codes = DatasetName("hours"), DatasetName("days"), DatasetName("codes")
    landing = DatasetName("landing")
    delivery = Accepted(dataset=landing, partition=Partitioning.INTERVAL)
    world.cluster.put(
        active(replace(reading("sums", published=(hours, codes)), schedule=daily, accepts=(delivery,))),
        active(replace(reading("days", read=(hours,), published=(days,)), schedule=daily)),
        active(replace(reading("weeks", read=(days, hours)), schedule=daily)),
        active(replace(reading("coded", read=(codes,)), schedule=daily)),
        active(replace(reading("started", read=(days,)), schedule=daily, start=DataStart())),
        active(replace(reading("delivered", read=(landing,)), schedule=daily)),
        active(replace(reading("own", read=(DatasetName("mine"),), published=(DatasetName("mine"),)))),
    )
    world.cluster.change(
        datasets={codes: Dataset(name=codes, pipeline=PipelineName("sums"), partition=Partitioning.WHOLE)}
    )

    answer = json.loads(nimbus(*CREATE, "--dry-run", "-o", "json").stdout)

    rows = {row["pipeline"]: row for row in answer["downstream"]}
    assert {"days", "weeks", "coded"} <= rows.keys() and not {"own", "delivered"} & rows.keys()
    assert (rows["days"]["upstream"], rows["days"]["total"]) == (["sums"], 3)
    assert (rows["weeks"]["upstream"], rows["weeks"]["total"]) == (["days", "sums"], 3)
    assert (rows["started"]["first"], rows["started"]["runs"]) == (None, 0)
    assert rows["started"]["why"] == "changes of the data that it reads start its runs"
    assert rows["coded"]["why"] == "no past date of it waits for, or reads, a part of this time"


def reading(
    name: str, read: tuple[DatasetName, ...] = (), published: tuple[DatasetName, ...] = ()
) -> PipelineSpec:
    reads = tuple(Read(name=one, dataset=one) for one in read)
    publications = tuple(Publication(dataset=one, partition=Partitioning.INTERVAL) for one in published)
    task = TaskSpec(
        name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", uses=read, publishes=publications
    )
    return PipelineSpec(name=PipelineName(name), reads=reads, tasks=(task,))
