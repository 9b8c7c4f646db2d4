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

from nimbus.api.paging import encoded
from nimbus.domain.commands import PublishDataset, RemoveDataset, WithdrawDataset
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import (
    Change,
    OutsideData,
    Partitioning,
    Publication,
    Table,
    Version,
    interval_text,
)
from nimbus.domain.ids import AttemptId, CommandId, DatasetName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
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
        sequence=number,
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
        ("r2", "r2.load.1"),
        ("r1", "r1.load.1"),
    ]
    assert [(row["start"], row["end"]) for row in answer["spans"]] == [
        ("2026-02-25T06:00:00Z", "2026-02-26T06:00:00Z"),
        ("2026-02-27T06:00:00Z", "2026-02-28T06:00:00Z"),
    ]
    assert answer["complete"]
    lines = shown.stdout.splitlines()
    assert lines[0] == "days, by interval: published 2 times, by sums"
    assert lines[1] == "  published from 2026-02-25 06:00:00Z to 2026-02-26 06:00:00Z"
    assert "check, of r1.load" in lines[-1]


def test_versions_of_one_partition_are_asked_for_by_name(nimbus: Invoke) -> None:
    partition = version(2, 1).partition
    found = nimbus("dataset", "show", "days", "--partition", partition, "-o", "json")

    assert [row["run"] for row in json.loads(found.stdout)["versions"]] == ["r2"]


def test_dataset_is_shown_with_its_readers_and_since_when_it_is_late(nimbus: Invoke, world: Any) -> None:
    record = world.reader.pipeline(world.spec.name)
    profile = replace(record.profile, fresh={DAYS: DAY}, reads=(DAYS,))
    world.cluster.put(replace(record, profile=profile))
    lines = nimbus("dataset", "show", "days").stdout.splitlines()
    answer = json.loads(nimbus("dataset", "show", "days", "-o", "json").stdout)

    assert lines[1:3] == ["  read by sums", "  late since 2026-03-01 06:00:00Z"]
    assert (answer["newest_data"], answer["late_from"]) == ("2026-02-28T06:00:00Z", "2026-03-01T06:00:00Z")
    assert answer["readers"] == ["sums"]


def test_versions_are_listed_page_by_page(api_url: str) -> None:
    place = f"{api_url}/api/v1/datasets/days/versions"
    first = httpx.get(place, params={"limit": 1}).json()
    second = httpx.get(place, params={"limit": 1, "cursor": first["next_cursor"]}).json()
    foreign = httpx.get(
        place, params={"cursor": httpx.get(f"{api_url}/api/v1/datasets?limit=1").json()["next_cursor"]}
    )

    assert [one["run"] for one in (*first["versions"], *second["versions"])] == ["r2", "r1"]
    assert (first["complete"], second["complete"], second["next_cursor"]) == (False, True, None)
    assert (foreign.status_code, foreign.json()["code"]) == (404, "unknown_cursor")
    for nonsense in (("a",), (-1,), (1 << 63,), (1, 1)):
        made = httpx.get(place, params={"cursor": encoded(nonsense)})
        assert (made.status_code, made.json()["code"]) == (404, "unknown_cursor")


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


def queued(world: Any) -> list[PublishDataset]:
    """Commands that were sent, with what they publish."""
    return [one for one in world.accepted if isinstance(one, PublishDataset)]


def test_version_from_outside_is_sent_by_the_command_line(nimbus: Invoke, world: Any) -> None:
    nimbus(*PUBLISH, "--interval", "2026-03-01T01:00+01:00", "2026-03-02T00:00Z", "--value", '{"rows": 3}')
    nimbus(*PUBLISH, "--digest", f"sha256:{'a' * 64}")

    first, second = queued(world)
    assert (first.dataset, first.uri, first.sha256) == ("days", "s3://in/1", "")
    assert (first.partition, first.value) == ("2026-03-01T00:00:00Z_2026-03-02T00:00:00Z", {"rows": 3})
    assert (second.partition, second.sha256) == ("", "a" * 64)


PUBLISH = ("dataset", "publish", "days", "--uri", "s3://in/1")


def test_same_key_publishes_once(nimbus: Invoke, world: Any) -> None:
    for _ in range(2):
        nimbus(*PUBLISH, "--idempotency-key", "file-1")
    nimbus(*PUBLISH)

    assert len(queued(world)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "eu", "--interval", "2026-03-01Z", "2026-03-02Z"), "interval"),
        (("--interval", "2026-03-02T00:00Z", "2026-03-01T00:00Z"), "must end after its start"),
        (("--interval", "2026-03-01T00:00Z", "2026-03-01T00:00:00.5Z"), "in whole seconds"),
        (("--interval", "0999-12-31T00:00Z", "2026-03-01T00:00Z"), "in the years 1000 to 8999"),
        (("--interval", "2026-03-01T00:00Z", "9000-01-01T00:00Z"), "in the years 1000 to 8999"),
        (("--key", "a/b"), "key"),
        (("--digest", "md5:1"), "digest"),
        (("--value", "{"), "is no JSON"),
        (("--value", f'"{"x" * 600}"'), "takes more than 512 bytes"),
        (("--value", "[" * 40 + "]" * 40), "has more than 32 levels"),
        (("--uri", "no uri"), "uri"),
        (("--uri", "https://ada:secret@in/1"), "has a password"),
        (("--uri", "https://:secret@in/1"), "has a password"),
    ],
)
def test_version_that_is_not_clear_is_refused(
    nimbus: Invoke, world: Any, words: tuple[str, ...], said: str
) -> None:
    refused = nimbus(*PUBLISH, *words)

    assert refused.exit_code != 0
    assert said in refused.stderr
    assert queued(world) == []


def test_version_from_outside_is_shown_as_unverified(nimbus: Invoke, world: Any, tmp_path: Path) -> None:
    outside = Version(
        partition="",
        number=7,
        at=T0,
        outside=OutsideData(uri="s3://in/1"),
        change=Change(command=CommandId("cmd-1"), by="erp"),
    )
    plan = Dataset(name=PLAN, pipeline=world.spec.name, partition=Partitioning.WHOLE)
    world.cluster.set("datasets", PLAN, plan.with_version(outside, bool))

    assert "outside, by erp" in nimbus("dataset", "show", "plan").stdout
    assert "s3://in/1 (unverified)" in nimbus("dataset", "show", "plan").stdout
    (row,) = json.loads(nimbus("dataset", "show", "plan", "-o", "json").stdout)["versions"]
    assert (row["run"], row["source"], row["outside"]["digest"]) == ("", "", None)
    copied = nimbus("dataset", "get", "plan", str(tmp_path / "x"))
    assert "has data from outside, which Nimbus does not copy: s3://in/1 (unverified)" in copied.stderr


def test_withdrawal_is_sent_with_its_reason(nimbus: Invoke, world: Any) -> None:
    nimbus("dataset", "withdraw", "days", "--partition", "eu", "--number", "7", "--reason", "half a file")

    assert world.accepted == [WithdrawDataset(dataset=DAYS, partition="eu", number=7, reason="half a file")]


def test_version_that_is_published_again_says_who_wanted_it_and_why(nimbus: Invoke, world: Any) -> None:
    change = Change(command=CommandId("cmd-1"), by="ann", reason="half a file", withdrew=2, restored=1)
    again = replace(version(1, 3), number=3, change=change)
    days = world.reader.dataset(DAYS).with_version(again, bool)
    world.cluster.set("datasets", DAYS, days)

    assert "check, of r1.load; again, by ann: half a file" in nimbus("dataset", "show", "days").stdout


def test_removal_is_sent_with_its_reason(nimbus: Invoke, world: Any) -> None:
    nimbus("dataset", "remove", "days", "--reason", "replaced")

    assert world.accepted == [RemoveDataset(dataset=DAYS, reason="replaced")]


def test_results_of_versions_are_shown(nimbus: Invoke, world: Any) -> None:
    run = world.new_run("r2")
    world.history.store_results(run.id, {TaskName("load"): {"rows": 3, "late": 1}})

    rows = json.loads(nimbus("dataset", "show", "days", "-o", "json").stdout)["versions"]
    assert [(row["run"], row["result"]) for row in rows] == [("r2", {"rows": 3, "late": 1}), ("r1", None)]
    row = nimbus("dataset", "show", "days").stdout.splitlines()[-2]
    assert row.endswith("rows 3, late 1")
    assert row.split()[1] == str(rows[0]["number"]), "`dataset withdraw --number` takes it"
    world.history.store_results(run.id, {TaskName("load"): {"text": "x" * 600}})
    assert "xxx" not in nimbus("dataset", "show", "days").stdout


def test_columns_of_the_newest_table_are_shown(nimbus: Invoke, world: Any, api_url: str) -> None:
    table = Table(columns={"id": "bigint", "<b>": "array<string>"}, more=2)
    world.history.store_results(RunId("r2"), {}, {TaskName("load"): table})

    (newest, older) = json.loads(nimbus("dataset", "show", "days", "-o", "json").stdout)["versions"]
    lines = nimbus("dataset", "show", "days").stdout.splitlines()
    assert newest["table"] == {"columns": {"id": "bigint", "<b>": "array<string>"}, "more": 2}
    assert older["table"] is None
    assert [line.split() for line in lines[-3:]] == [
        ["id", "bigint"],
        ["<b>", "array<string>"],
        ["and", "2", "more"],
    ]
    listed = httpx.get(f"{api_url}/api/v1/datasets/days/versions").json()["versions"]
    assert [one["table"] for one in listed] == [None, None]  # they were not asked for
