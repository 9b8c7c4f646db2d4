"""Explanations over HTTP and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
from click.testing import Result

from nimbus.domain.pipelines.pipeline import Schedule
from tests.nimbus.definitions import active
from tests.nimbus.integration.conftest import T0

Invoke = Callable[..., Result]


def test_command_line_explains_a_run_and_one_of_its_tasks(world: Any, nimbus: Invoke) -> None:
    world.opened(world.new_run("r1"), "extract")

    whole, task = nimbus("run", "explain", "r1"), nimbus("run", "explain", "r1", "load")

    assert whole.stdout.splitlines() == [
        "r1: running",
        "  task extract: it computes: attempt 1 on worker w1, since 2026-03-01 06:01:00Z",
        "  tasks: 1 more wait for tasks that they need",
    ]
    assert task.stdout.splitlines() == ["r1: running", "  task load: needs extract (running)"]


def test_command_line_explains_a_pipeline_with_its_next_fire(world: Any, nimbus: Invoke) -> None:
    daily = replace(world.spec, schedule=Schedule(cron="0 7 * * *", timezone="UTC"))
    world.cluster.put(active(daily, schedule_position=T0))

    table, document = (
        nimbus("pipeline", "explain", "sums"),
        nimbus("pipeline", "explain", "sums", "-o", "json"),
    )

    assert "schedule: 0 7 * * * (UTC): the next fire is at 2026-03-01 07:00:00Z" in table.stdout
    assert "scheduler s2 lacks a.py of it, and fetches them" in table.stdout
    assert "next change: 2026-03-01 " in table.stdout
    answer = json.loads(document.stdout)
    assert (answer["id"], answer["state"], answer["more"]) == ("sums", "active", 0)
    assert answer["next_change"] == "2026-03-01T07:00:00Z"


def test_explanation_of_what_is_not_there_exits_as_not_found(world: Any, nimbus: Invoke) -> None:
    world.cluster.put(world.new_run("r1"))

    asked = (("run", "explain", "none"), ("run", "explain", "r1", "none"), ("pipeline", "explain", "none"))

    assert [nimbus(*words).exit_code for words in asked] == [3, 3, 3]


def test_explanation_says_that_zookeeper_is_away(world: Any, api: httpx.Client) -> None:
    world.cluster.available = False

    answers = [api.get("/runs/r1/explanation"), api.get("/pipelines/sums/explanation")]

    assert [(one.status_code, one.json()["code"]) for one in answers] == [(503, "store_unavailable")] * 2
    assert "ZooKeeper does not answer" in answers[0].json()["detail"]
