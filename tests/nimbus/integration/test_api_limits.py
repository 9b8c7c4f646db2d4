"""Pools, cordoned workers and queued runs: the API and the command line, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus.client import Client, Wanted
from nimbus.domain.cluster.schedulers import LeaderReport, LimitUse, WantedSlots
from nimbus.domain.cluster.settings import ClusterCalendar, ClusterSettings, Hold, HoldOf
from nimbus.domain.commands import (
    CordonWorker,
    RemovePool,
    RemoveVariable,
    SetCalendar,
    SetHold,
    SetPool,
    SetShare,
    SetVariable,
    UncordonWorker,
)
from nimbus.domain.ids import WorkerId
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.pipeline import Concurrency, Schedule
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.task_run import Outcome
from tests.nimbus.definitions import active

Invoke = Callable[..., Result]


def submitted(world: Any) -> Any:
    (queued,) = world.reader.commands()
    return queued.command


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("pool", "set", "db", "10"), SetPool(pool="db", size=10)),
        (("pool", "remove", "db"), RemovePool(pool="db")),
        (("share", "set", "oidc:ada", "2"), SetShare(team="oidc:ada", weight=2)),
        (("hold", "end", "freeze"), SetHold(name="freeze", hold=None)),
        (("calendar", "remove", "de"), SetCalendar(name="de", days=None)),
        (("var", "set", "dwh", "jdbc:x"), SetVariable(name="dwh", value="jdbc:x")),
        (("var", "remove", "dwh"), RemoveVariable(name="dwh")),
        (
            ("worker", "cordon", "w1", "--reason", "disk"),
            CordonWorker(worker=WorkerId("w1"), reason="disk"),
        ),
        (("worker", "uncordon", "w1"), UncordonWorker(worker=WorkerId("w1"))),
    ],
)
def test_command_line_submits_the_command_that_it_names(
    world: Any, nimbus: Invoke, words: tuple[str, ...], command: object
) -> None:
    done = nimbus(*words)
    assert (done.exit_code, done.stdout) == (0, "done\n")

    world.deciding, world.health.leading = False, None
    assert nimbus(*words).exit_code == 6
    assert submitted(world) == command


def test_calendar_of_a_file_is_set_and_shown_in_the_form_of_the_file(
    world: Any, nimbus: Invoke, api: httpx.Client, api_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "cn.yaml"
    file.write_text("weekdays: [mon, tue]\nholidays: [2026-12-28]\nworkdays: [2026-12-26]\n")
    days = Calendar(weekdays=(0, 1), exceptions=(date(2026, 12, 26), date(2026, 12, 28)))
    followed = replace(world.record.profile, schedule=Schedule(cron="@daily", timezone="UTC", calendar="cn"))
    one = ClusterCalendar(days=days, reason="2026", set_by="ann", set_at=world.clock.now())
    world.cluster.put(ClusterSettings(calendars={"cn": one}), replace(world.record, profile=followed))

    shown, listed = nimbus("calendar", "show", "cn"), nimbus("calendar", "list").stdout
    (row,) = api.get("/calendars").json()["calendars"]
    page = httpx.get(f"{api_url}/ui/pipelines").text
    world.deciding, world.health.leading = False, None
    nimbus("calendar", "set", "cn", str(file), "--reason", "2026")

    assert shown.stdout == file.read_text()
    assert (row["followed_by"], row["reason"], row["set_by"]) == (["sums"], "2026", "ann")
    assert listed.splitlines()[-1].split()[:4] == ["cn", "2", "2026-12-28", "sums"]
    assert "the last 2026-12-28; followed by sums" in page
    assert submitted(world) == SetCalendar(name="cn", days=days, reason="2026")


def test_bad_calendar_is_refused_with_the_line_of_its_file(
    nimbus: Invoke, api: httpx.Client, tmp_path: Path
) -> None:
    text = "holidays:\n- 2026-12-25\n- 2026-12-25\n"
    (tmp_path / "de.yaml").write_text(text)

    done = nimbus("calendar", "set", "de", str(tmp_path / "de.yaml"))
    answer = api.put("/calendars/de", json={"text": text})

    why = "3: holidays[1]: 2026-12-25 is here twice (first on line 2); keep one"
    assert (done.exit_code, done.stderr) == (2, f"error: {tmp_path}/de.yaml:{why}\n")
    assert (answer.status_code, answer.json()["code"]) == (409, "bad_calendar")
    assert answer.json()["detail"] == f"calendar de:{why}"
    assert nimbus("calendar", "show", "de").exit_code == 3


def test_pools_are_listed_as_the_leader_says_and_counted_from_runs_while_nobody_leads(
    world: Any, nimbus: Invoke, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.put(ClusterSettings(pools={"api": 4, "db": 5}))
    run = world.new_run("r1")
    taking = [
        replace(task, spec=replace(task.spec, pools={"db": 2}, needs=())) for task in run.tasks.values()
    ]
    world.opened(replace(run, tasks=run.tasks.replaced(taking)), "extract")

    world.cluster.put(replace(world.health.me, epoch=None, recovered_at=None))
    table = nimbus("pool", "list").stdout.splitlines()
    assert [line.split() for line in table[-2:]] == [["api", "4", "0", "0"], ["db", "5", "2", "1"]]

    said = LeaderReport(limits=LimitUse(pools={"db": 3}, waiting={"db": 9}))
    world.cluster.put(replace(world.health.me, epoch=7, recovered_at=world.clock.now(), report=said))
    monkeypatch.setattr(world.reader, "runs", None)  # there may be ten thousand, so they must not be read
    found = httpx.get(f"{api_url}/api/v1/pools").json()["pools"]
    assert found[1] == {"name": "db", "size": 5, "used": 3, "waiting": 9}


def test_pools_are_counted_from_runs_while_a_new_leader_reads_the_state(world: Any, api_url: str) -> None:
    world.cluster.put(ClusterSettings(pools={"db": 5}))
    run = world.new_run("r1")
    taking = [replace(task, spec=replace(task.spec, pools={"db": 2})) for task in run.tasks.values()]
    world.opened(replace(run, tasks=run.tasks.replaced(taking)), "extract")
    said = LeaderReport(limits=LimitUse(pools={"db": 4}))
    former = replace(world.health.me, id="s2", epoch=7, recovered_at=world.clock.now(), report=said)
    world.cluster.put(former, replace(world.health.me, epoch=8, recovered_at=None))

    (found,) = httpx.get(f"{api_url}/api/v1/pools").json()["pools"]

    assert found["used"] == 2


def test_wanted_slots_are_those_of_the_leaders_report(
    world: Any, api: httpx.Client, api_url: str, nimbus: Invoke
) -> None:
    gpu = WantedSlots(labels=("gpu",), target="big", slots=3, since=world.clock.time - timedelta(seconds=65))
    led = replace(world.health.me, recovered_at=world.clock.time, report=LeaderReport(wanted=(gpu,)))
    former = replace(led, id="s2", epoch=6, report=LeaderReport(wanted=(replace(gpu, slots=9),)))
    world.cluster.put(led, former)
    answer, shown = api.get("/workers/wanted").json(), nimbus("worker", "wanted")
    with Client(api_url) as client:
        said = client.wanted()
        world.cluster.put(replace(led, report=LeaderReport()))
        unknown = client.wanted(), nimbus("worker", "wanted").exit_code

    assert answer["wanted"] == [
        {"labels": ["gpu"], "target": "big", "slots": 3, "since": "2026-03-01T05:58:55Z", "waited_s": 65.0}
    ]
    assert said == [Wanted(labels=("gpu",), target="big", slots=3, waited_s=65.0)]
    assert shown.stdout.splitlines()[-1].split() == ["gpu", "big", "3", "1m05s"]
    assert unknown == (None, 6)


def test_drain_waits_until_a_worker_has_nothing_open(world: Any, nimbus: Invoke) -> None:
    run = world.opened(world.new_run("r1"), "extract")
    drain = ("worker", "drain", "w1", "--reason", "disk", "--timeout", "0")
    late = nimbus(*drain)
    world.ended(run, "extract", Outcome.SUCCEEDED)

    done = nimbus(*drain)

    assert late.exit_code == 5
    assert "still has 1 open attempts and stays cordoned" in late.stderr
    assert (done.exit_code, done.stdout) == (0, "worker w1 has no open attempt, and gets no new tasks\n")


def test_cordoned_worker_is_shown_with_its_reason(world: Any, nimbus: Invoke, api_url: str) -> None:
    world.cluster.put(ClusterSettings(cordoned={WorkerId("w1"): "new disk"}), world.new_run("r1"))

    (worker,) = httpx.get(f"{api_url}/api/v1/workers").json()["workers"]
    run = httpx.get(f"{api_url}/api/v1/runs/r1").json()
    waiting = next(task for task in run["tasks"] if task["name"] == "extract")

    assert worker["cordoned"] == "new disk"
    assert "cordoned: new disk" in nimbus("cluster", "workers").stdout
    assert waiting["why"].startswith("the only worker is draining or cordoned")


def test_queued_run_is_shown_with_its_place(world: Any, nimbus: Invoke, api_url: str) -> None:
    world.cluster.put(active(replace(world.spec, concurrency=Concurrency(limit=1))))
    world.opened(world.new_run("r1"), "extract")
    world.cluster.put(lifecycle.queued(world.new_run("r2")))

    found = httpx.get(f"{api_url}/api/v1/runs/r2").json()
    shown = nimbus("run", "show", "r2").stdout
    listed = nimbus("run", "list", "--state", "queued").stdout

    said = "1st of 1 in the queue, waits for run r1 to end, of pipeline sums: concurrency.limit is 1"
    assert (found["state"], found["why"]) == ("queued", said)
    assert f"waits     {said}" in shown
    assert "r2" in listed
    assert "r1" not in listed


def test_variables_are_listed_with_their_values(world: Any, nimbus: Invoke, api_url: str) -> None:
    world.cluster.put(ClusterSettings(variables={"dwh": "jdbc:x", "b": "1"}))

    assert httpx.get(f"{api_url}/api/v1/variables").json() == {"variables": {"b": "1", "dwh": "jdbc:x"}}
    assert [line.split() for line in nimbus("var", "list").stdout.splitlines()[-2:]] == [
        ["b", "1"],
        ["dwh", "jdbc:x"],
    ]


@pytest.mark.parametrize(("name", "value"), [("a-b", "1"), ("1", "1"), ("items", "1"), ("a", "x" * 1025)])
def test_variable_of_another_form_is_refused(api_url: str, name: str, value: str) -> None:
    answer = httpx.put(f"{api_url}/api/v1/variables/{name}", json={"value": value})

    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("words", "hold"),
    [
        (
            ("--team", "ops", "--until", "2030-01-01T00:00Z"),
            {"of": HoldOf.TEAM, "name": "ops", "until": datetime(2030, 1, 1, tzinfo=UTC)},
        ),
        (("--all", "--alert-after", "2h"), {"of": HoldOf.ALL, "alert_after": timedelta(hours=2)}),
    ],
)
def test_hold_is_added_as_the_command_line_says(
    world: Any, nimbus: Invoke, words: tuple[str, ...], hold: dict[str, Any]
) -> None:
    world.deciding, world.health.leading = False, None

    assert nimbus("hold", "add", "freeze", "--reason", "month end", *words).exit_code == 6

    asked = submitted(world)
    assert asked == SetHold(name="freeze", hold=Hold(reason="month end", held_at=asked.hold.held_at, **hold))
    assert nimbus("hold", "add", "freeze", "--reason", "x", "--all", "--tag", "y").exit_code == 2


def test_hold_ends_after_a_duration(world: Any, nimbus: Invoke) -> None:
    world.deciding, world.health.leading = False, None
    before = datetime.now(UTC)

    assert nimbus("hold", "add", "freeze", "--all", "--reason", "x", "--until", "2h").exit_code == 6

    assert timedelta(hours=2) <= submitted(world).hold.until - before < timedelta(hours=2, minutes=5)


def test_holds_are_listed_with_who_and_why(world: Any, nimbus: Invoke, api_url: str) -> None:
    held = Hold(of=HoldOf.ALL, reason="month end", held_by="ada", held_at=world.clock.now())
    world.cluster.put(ClusterSettings(holds={"freeze": held}))

    (found,) = httpx.get(f"{api_url}/api/v1/holds").json()["holds"]

    assert (found["hold"], found["pipelines"], found["held_by"]) == ("freeze", 1, "ada")
    assert "all pipelines are held by ada since" in nimbus("hold", "list").stdout
