"""`nimbus pipeline plan` against a real API server."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.domain.cluster.settings import ClusterCalendar, ClusterSettings
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.pipeline import Schedule
from tests.nimbus.definitions import active

SAME: dict[str, Any] = {
    "schema": 1,
    "name": "sums",
    "description": "Adds things up",
    "tasks": {
        "load": {"type": "sql", "script": "l.sql", "needs": ["extract"]},
        "extract": {"type": "python", "script": "e.py", "timeout": "5m", "retries": {"limit": 1}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "e.py").write_text("")
    (tmp_path / "l.sql").write_text("select 1")
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(SAME))
    return tmp_path


def said(folder: Path, **changes: Any) -> None:
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({**SAME, **changes}))


def plan(url: str, folder: Path) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["pipeline", "plan", str(folder), "--server", url, "-o", "json"])
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def keys(found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {change["key"]: (change["now"], change["then"]) for change in found["changes"]}


def test_nothing_changes_with_the_definition_that_is_there(api_url: str, folder: Path) -> None:
    found = plan(api_url, folder)

    assert (found["changes"], found["waits"], found["known"]) == ([], [], True)


def test_changed_keys_have_both_values(api_url: str, folder: Path) -> None:
    extract = {**SAME["tasks"]["extract"], "timeout": "7m"}
    said(folder, priority="high", tasks={"load": SAME["tasks"]["load"], "extract": extract})

    assert keys(plan(api_url, folder)) == {
        "priority": ("medium", "high"),
        "tasks.extract.timeout_s": (300.0, 420.0),
    }


def test_new_and_removed_tasks_are_one_change_each(api_url: str, folder: Path) -> None:
    said(folder, tasks={"extract": SAME["tasks"]["extract"], "again": SAME["tasks"]["extract"]})

    found = keys(plan(api_url, folder))

    assert set(found) == {"tasks.load", "tasks.again"}
    assert found["tasks.load"][1] is None
    assert found["tasks.again"][0] is None


def test_next_fires_are_those_of_both_schedules(world: Any, api_url: str, folder: Path) -> None:
    world.spec = replace(world.spec, schedule=Schedule(cron="0 6 * * *", timezone="UTC"))
    world.cluster.put(active(world.spec, updated_at=world.record.updated_at))
    said(folder, schedule={"cron": "30 7 * * *", "timezone": "Europe/Berlin"})

    found = plan(api_url, folder)

    assert {fire[11:] for fire in found["next_fires"]["now"]} == {"06:00:00+00:00"}
    assert {fire[11:] for fire in found["next_fires"]["then"]} <= {"05:30:00+00:00", "06:30:00+00:00"}
    assert len(found["next_fires"]["then"]) == 5
    assert keys(found)["schedule.cron"] == ("0 6 * * *", "30 7 * * *")


def test_pool_label_and_target_that_nobody_has_are_told(api_url: str, folder: Path) -> None:
    asks = {"pool": {"warehouse": 2}, "runs_on": ["gpu"]}
    load = {**SAME["tasks"]["load"], "spark": {"target": "big"}}
    said(folder, tasks={"load": load, "extract": {**SAME["tasks"]["extract"], **asks}})

    waits = plan(api_url, folder)["waits"]

    assert any("there is no pool warehouse" in wait for wait in waits)
    assert any("no worker has the labels gpu" in wait for wait in waits)
    assert any("target big" in wait for wait in waits)


def test_pipeline_that_nobody_knows_is_new(api_url: str, folder: Path) -> None:
    said(folder, name="other", timeout="1h")

    found = plan(api_url, folder)

    assert found["known"] is False
    assert keys(found)["timeout_s"] == (None, timedelta(hours=1).total_seconds())


def test_table_shows_a_task_by_what_it_is(api_url: str, folder: Path) -> None:
    said(folder, tasks={**SAME["tasks"], "again": SAME["tasks"]["extract"]})

    result = CliRunner().invoke(cli, ["pipeline", "plan", str(folder), "--server", api_url])

    (line,) = [line for line in result.stdout.splitlines() if "tasks.again" in line]
    assert line.split() == ["tasks.again", "python", "e.py"]


def test_next_fires_follow_a_calendar_of_the_cluster(world: Any, api_url: str, folder: Path) -> None:
    thursday = ClusterCalendar(days=Calendar(weekdays=(3,)), set_at=world.clock.now())
    world.cluster.put(ClusterSettings(calendars={"work": thursday}))
    said(folder, schedules={"a": {"cron": "@daily", "calendar": "work"}})

    then = plan(api_url, folder)["next_fires"]["then"]

    assert len(then) > 1
    assert {datetime.fromisoformat(one).weekday() for one in then} == {3}
