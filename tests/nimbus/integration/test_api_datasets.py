"""Datasets: the API and the command line, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import AttemptId, DatasetName, RunId, TaskName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.publications import Partitioning, Publication, Version, interval_text
from tests.nimbus.definitions import active
from tests.nimbus.integration.conftest import T0
from tests.nimbus.integration.test_api_intervals import DAY

Invoke = Callable[..., Result]
DAYS, PLAN = DatasetName("days"), DatasetName("plan")


def version(number: int, ago: int) -> Version:
    run, end = RunId(f"r{number}"), T0 - ago * DAY
    return Version(
        partition=interval_text(DataInterval(start=end - DAY, end=end)),
        number=number,
        run=run,
        task=TaskName("check"),
        source=AttemptId(run, TaskName("load"), 1),
        output=f"sums/{run}/load/1",
        at=T0,
    )


@pytest.fixture(autouse=True)
def published(world: Any) -> None:
    """Two days are published; a second dataset is only planned."""
    task = replace(
        world.spec.tasks[0],
        publishes=(
            Publication(dataset=DAYS, partition=Partitioning.INTERVAL),
            Publication(dataset=PLAN),
        ),
    )
    world.cluster.put(active(replace(world.spec, tasks=(task, *world.spec.tasks[1:]))))
    found = Dataset(name=DAYS, pipeline=world.spec.name, partition=Partitioning.INTERVAL)
    for number, ago in ((1, 3), (2, 1)):
        found = found.with_version(version(number, ago), bool)
    world.cluster.set("datasets", DAYS, found)


def test_datasets_are_listed_with_who_publishes_them(nimbus: Invoke, api_url: str) -> None:
    answer = httpx.get(f"{api_url}/api/v1/datasets").json()

    assert [
        (row["name"], row["partition"], row["publishers"], row["published"]) for row in answer["datasets"]
    ] == [("days", "interval", ["sums"], 2), ("plan", None, ["sums"], 0)]
    assert answer["datasets"][0]["newest"]["run"] == "r2"
    lines = nimbus("dataset", "list").stdout.splitlines()
    assert lines[-2].split()[:4] == ["days", "interval", "sums", "2"]
    assert lines[-1].split() == ["plan", "sums", "0"]


def test_dataset_is_shown_with_its_spans_and_versions(nimbus: Invoke) -> None:
    shown = nimbus("dataset", "show", "days")
    answer = json.loads(nimbus("dataset", "show", "days", "-o", "json").stdout)

    assert [(row["run"], row["source"]) for row in answer["versions"]] == [
        ("r1", "r1.load.1"),
        ("r2", "r2.load.1"),
    ]
    assert [(row["start"], row["end"]) for row in answer["spans"]] == [
        ("2026-02-25T06:00:00Z", "2026-02-26T06:00:00Z"),
        ("2026-02-27T06:00:00Z", "2026-02-28T06:00:00Z"),
    ]
    assert answer["complete"]
    lines = shown.stdout.splitlines()
    assert lines[0] == "days, by interval: published 2 times, by sums"
    assert lines[1] == "  published from 2026-02-25 06:00:00Z to 2026-02-26 06:00:00Z"
    assert "check, of r2.load" in lines[-1]


def test_versions_of_one_partition_are_asked_for_by_name(nimbus: Invoke) -> None:
    partition = version(2, 1).partition
    found = nimbus("dataset", "show", "days", "--partition", partition, "-o", "json")

    assert [row["run"] for row in json.loads(found.stdout)["versions"]] == ["r2"]


def test_dataset_that_is_only_planned_has_no_version(nimbus: Invoke) -> None:
    assert nimbus("dataset", "show", "plan").stdout.splitlines() == ["plan: published 0 times, by sums"]


def test_dataset_that_nobody_knows_is_not_found(nimbus: Invoke) -> None:
    found = nimbus("dataset", "show", "dyas")

    assert found.exit_code == 3
    assert "there is no dataset dyas: `nimbus dataset list` shows all of them." in found.stderr


def test_copy_of_a_dataset_says_which_partition_is_meant(nimbus: Invoke, tmp_path: Path) -> None:
    which = nimbus("dataset", "get", "days", str(tmp_path / "x"))
    no_such = nimbus("dataset", "get", "days", str(tmp_path / "x"), "--partition", "eu")
    never = nimbus("dataset", "get", "plan", str(tmp_path / "x"))

    assert [one.exit_code for one in (which, no_such, never)] == [2, 3, 3]
    assert "dataset days has partitions: say which one, with --partition" in which.stderr
    assert "partition eu of dataset days is not published." in no_such.stderr
    assert "dataset plan is not published." in never.stderr
