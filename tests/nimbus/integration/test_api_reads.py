"""Reads of the API, over real HTTP, on a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from nimbus.api.services import ReadinessCheck
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.workers import Refusals
from nimbus.domain.cluster.schedulers import LeaderReport, LimitUse
from nimbus.domain.ids import AttemptId, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import SparkPlace, TaskKind
from nimbus.domain.runs import growth
from nimbus.domain.runs.task_run import Outcome, Reused, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.ports import KeptLog
from tests.nimbus.integration.web_samples import HOSTILE, terms


def test_participants_are_listed_in_queue_order_with_what_each_lacks(api: httpx.Client) -> None:
    answer = api.get("/participants").json()

    assert answer["leader"] == {
        "id": "s1",
        "address": "http://s1:8700",
        "epoch": 7,
        "leader_since": "2026-03-01T06:00:00Z",
    }
    first, second = answer["participants"]
    assert (first["id"], first["queue_position"], first["is_leader"], first["role"]) == (
        "s1",
        0,
        True,
        "leader",
    )
    assert (second["id"], second["queue_position"], second["is_leader"]) == ("s2", 1, False)
    assert (second["ready"], second["missing_bytes"], second["missing"][0]["path"]) == (False, 9, "a.py")


def test_a_latch_without_registration_is_shown_all_the_same(world: Any, api: httpx.Client) -> None:
    place = world.health.queue[1]
    world.health.queue.append(type(place)(id="s3", boot_id="b3", position=2, is_leader=False))

    last = api.get("/participants").json()["participants"][-1]

    assert (last["id"], last["registered"], last["queue_position"], last["boot_id"]) == ("s3", False, 2, "b3")


def test_leader_is_null_while_nobody_leads(world: Any, api: httpx.Client) -> None:
    world.health.leading = None

    assert api.get("/leader").json() == {"leader": None}


def test_history_of_terms_is_read_page_by_page_from_the_store_and_then_from_storage(
    world: Any, api: httpx.Client
) -> None:
    assert api.get("/cluster/history").json()["terms"] == []
    terms(world, 5)
    oldest = world.reader.terms(5)[-1]
    for epoch in (1, 2):
        world.history.store_terms([replace(oldest, epoch=epoch, before=None)])
    world.cluster.put(replace(oldest, before=2))

    found, cursor = [], None
    while cursor is not None or not found:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = api.get("/cluster/history", params=query).json()
        found, cursor = [*found, *page["terms"]], page["next_cursor"]
    assert [term["epoch"] for term in found] == [7, 6, 5, 4, 3, 2, 1]
    assert (found[0]["cause"], found[0]["ended_at"], found[0]["is_exact"]) == (None, None, False)
    assert (found[1]["cause"], found[1]["reason"], found[1]["by"]) == ("handed_over", HOSTILE, "ann")
    assert (found[0]["gap_s"], found[0]["before"], found[0]["unrecorded"]) == (60, 6, 0)
    assert found[0]["adopted"] == {"runs": 2, "claimed": 3, "unclaimed": 1, "ended": 1, "fenced": 1}
    assert api.get("/cluster/history?cursor=WyJhIl0").json()["code"] == "unknown_cursor"
    world.releases.bucket.unavailable = True
    page = api.get("/cluster/history").json()
    assert (len(page["terms"]), page["history_complete"], page["next_cursor"]) == (5, False, None)


def test_succession_says_who_would_lead_and_what_the_figures_are_made_of(
    world: Any, api: httpx.Client
) -> None:
    world.opened(world.new_run("r1"), "extract")
    terms(world)
    lacking = api.get("/cluster/succession").json()
    lacks = replace(world.health.me, id="s2", ready=False, missing_count=1, missing_bytes=9)
    world.cluster.put(replace(lacks, missing_eta_s=30.0))
    fetching = api.get("/cluster/succession").json()
    world.cluster.put(replace(world.health.me, id="s2"))
    answer = api.get("/cluster/succession").json()
    said = api.get("/status").json()["succession"]
    world.cluster.put(replace(world.health.me, has_sentinel=False))
    unwatched = api.get("/cluster/succession").json()
    world.health.queue = world.health.queue[:1]
    alone = api.get("/cluster/succession").json()

    lacking_one = {"id": "s2", "ready": False, "lacks": "", "missing_count": 1, "missing_bytes": 9}
    assert lacking["successor"] == {**lacking_one, "missing_eta_s": None}
    assert lacking["gap"] is None
    assert fetching["successor"] == {**lacking_one, "missing_eta_s": 30.0}
    assert (fetching["gap"]["expected_s"], fetching["gap"]["at_most_s"]) == (30.25, None)
    assert (answer["successor"]["ready"], answer["successor"]["missing_count"]) == (True, 0)
    assert (answer["leader"], answer["open_attempts"]) == ("s1", 1)
    assert (answer["gap"]["expected_s"], answer["gap"]["at_most_s"]) == (0.25, 10.25)
    assert answer["said"] == said
    assert (unwatched["gap"]["expected_s"], unwatched["gap"]["at_most_s"]) == (10.25, 10.25)
    assert "no crash sentinel of the leader runs" in unwatched["gap"]["made_of"]
    assert (alone["successor"], alone["gap"]) == (None, None)


def test_status_counts_what_there_is(world: Any, api: httpx.Client) -> None:
    world.opened(world.new_run("r1"), "extract")
    world.succeeded("r2")

    answer = api.get("/status").json()

    assert answer["runs"] == {"running": 1, "succeeded": 1}
    assert (answer["slots"], answer["slots_busy"], answer["schedulers"]) == (1, 1, 2)
    assert (answer["schedulers_ready"], answer["pipelines"]) == (1, {"active": 1})


def test_a_run_says_that_a_target_is_full_and_workers_say_their_targets(
    world: Any, api: httpx.Client
) -> None:
    world.worker = replace(world.worker, slots=9, targets={"big": 1})
    world.cluster.put(world.worker)
    extract = next(task for task in world.spec.tasks if task.name == "extract")
    at_big = replace(extract, kind=TaskKind.PYSPARK, spark_place=SparkPlace(target="big"))
    tasks = Tasks([TaskRun(spec=at_big)])
    world.opened(world.new_run("r1", tasks=tasks), "extract")
    world.cluster.put(world.new_run("r2", tasks=tasks))
    world.cluster.put(replace(world.health.me, report=LeaderReport(limits=LimitUse(targets={"big": 1}))))

    (waiting,) = api.get("/runs/r2").json()["tasks"]
    (worker,) = api.get("/workers").json()["workers"]

    assert waiting["why"] == "the only slot of target big is taken"
    assert worker["targets"] == {"big": 1}


def test_drivers_in_clusters_are_no_busy_slots_of_their_worker(world: Any, api: httpx.Client) -> None:
    world.worker = replace(world.worker, slots=1, orders_in_clusters=1)
    world.cluster.put(world.worker)
    world.opened(world.new_run("r1"), "extract")
    world.cluster.put(world.new_run("r2"))

    (worker,) = api.get("/workers").json()["workers"]
    waiting = api.get("/runs/r2").json()["tasks"]

    assert (worker["busy"], worker["in_clusters"]) == (0, 1)
    assert api.get("/status").json()["slots_busy"] == 0
    assert next(task["why"] for task in waiting if task["name"] == "extract").startswith("ready")


def test_status_names_who_keeps_the_schema_from_being_raised(world: Any, api: httpx.Client) -> None:
    world.health.me = replace(world.health.me, newest_schema=2)
    world.cluster.put(replace(world.health.me, id="new"))

    answer = api.get("/status").json()

    assert (answer["cluster_schema"], answer["newest_schema"]) == (1, 2)
    assert answer["older"] == ["scheduler s1", "scheduler s2", "worker w1"]


def test_workers_show_their_open_attempts(world: Any, api: httpx.Client) -> None:
    world.opened(world.new_run("r1"), "extract")

    (worker,) = api.get("/workers").json()["workers"]

    assert (worker["id"], worker["slots"], worker["busy"]) == ("w1", 1, 1)


def test_workers_show_the_refusals_that_make_them_back_off(world: Any, api: httpx.Client) -> None:
    (before,) = api.get("/workers").json()["workers"]
    refused = {WorkerId("w1"): Refusals(1, world.clock.time + timedelta(minutes=2))}
    world.cluster.put(replace(world.health.me, refusals=refused))

    (worker,) = api.get("/workers").json()["workers"]

    assert (before["refusals"], before["backoff_until"]) == (0, None)
    assert (worker["refusals"], worker["backoff_until"]) == (1, "2026-03-01T06:02:10Z")


def test_a_pipeline_is_shown_with_its_definition(api: httpx.Client) -> None:
    (line,) = api.get("/pipelines").json()["pipelines"]
    full = api.get("/pipelines/sums").json()

    assert (line["name"], line["state"], line["tasks"]) == ("sums", "active", 2)
    extract = next(task for task in full["spec"]["tasks"] if task["name"] == "extract")
    assert (extract["timeout_s"], extract["priority"], extract["retries"]["limit"]) == (300.0, "medium", 1)


def test_a_run_shows_progress_of_what_runs_and_why_the_rest_waits(world: Any, api: httpx.Client) -> None:
    world.opened(world.new_run("r1"), "extract")

    extract, load = api.get("/runs/r1").json()["tasks"]

    assert (extract["state"], extract["why"]) == ("running", None)
    assert extract["attempts"][0]["progress"] == {"stages": "3/7"}
    assert (extract["attempts"][0]["pid"], extract["attempts"][0]["checkpoint"]) == (99, None)
    assert (load["state"], load["why"]) == ("waiting", "needs extract (running)")


def test_a_run_shows_the_checkpoint_of_what_runs(world: Any, api: httpx.Client) -> None:
    world.opened(world.new_run("r1"), "extract")
    world.cluster.set_slots(AttemptId(RunId("r1"), TaskName("extract"), 1), Slots(checkpoint='{"row":3}'))

    assert api.get("/runs/r1").json()["tasks"][0]["attempts"][0]["checkpoint"] == {"row": 3}


def test_one_run_is_shown_without_a_look_at_other_runs(
    world: Any, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.opened(world.new_run("r1"), "extract")
    world.cluster.put(world.new_run("r2"))

    def refuse(*_args: object) -> None:
        raise AssertionError("this reads more than one run")

    for name in ("run_list", "runs"):
        monkeypatch.setattr(world.reader, name, refuse)
    waits = api.get("/runs/r2").json()["tasks"][0]
    assert waits["why"] == "no free worker: the only slot is busy"

    for name in ("workers", "orders", "pipelines", "commands"):  # no task of r1 waits for a worker
        monkeypatch.setattr(world.reader, name, refuse)
    assert api.get("/runs/r1").status_code == 200


def test_a_task_waits_for_workers_that_back_off_as_the_leader_says(world: Any, api: httpx.Client) -> None:
    world.opened(world.new_run("r1"), "extract")
    world.cluster.put(world.new_run("r2"), replace(world.worker, id=WorkerId("w2"), slots=5))
    refused = {WorkerId("w2"): Refusals(2, world.clock.time)}
    world.cluster.put(replace(world.health.me, refusals=refused))

    (extract, _) = api.get("/runs/r2").json()["tasks"]

    assert extract["why"] == (
        "no free worker: the only slot is busy; "
        "worker w2 did not start its last 2 attempts: none before 06:00:20Z"
    )


def test_a_run_that_moves_to_history_while_it_is_listed_is_listed_once(
    world: Any, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.history.store(world.succeeded("r1"))
    monkeypatch.setattr(world.reader, "runs", lambda _wanted: {})

    (row,) = api.get("/runs").json()["runs"]

    assert (row["id"], row["archived"]) == ("r1", True)


def test_a_run_that_moved_to_history_is_found_there(world: Any, api: httpx.Client) -> None:
    world.history.store(world.succeeded("r1"))
    world.cluster.set("runs", RunId("r1"), None)

    answer = api.get("/runs/r1").json()

    assert (answer["state"], answer["archived"], answer["tasks_done"]) == ("succeeded", True, 2)


def test_runs_are_listed_newest_first_without_doubles_and_filtered(world: Any, api: httpx.Client) -> None:
    world.history.store(world.succeeded("r1"))
    world.cluster.put(world.new_run("r2", created_at=world.clock.time + timedelta(hours=1)))

    def ids(**query: Any) -> list[str]:
        return [run["id"] for run in api.get("/runs", params=query).json()["runs"]]

    assert ids() == ["r2", "r1"]
    assert ids(limit=1) == ["r2"]
    assert ids(state="succeeded") == ["r1"]
    assert ids(pipeline="other") == []


def test_live_runs_are_listed_while_history_is_down(world: Any, api: httpx.Client) -> None:
    world.cluster.put(world.new_run("r1"))
    world.releases.bucket.unavailable = True

    answer = api.get("/runs").json()

    assert [run["id"] for run in answer["runs"]] == ["r1"]
    assert answer["history_complete"] is False


def test_timeline_tells_a_run_in_order(world: Any, api: httpx.Client) -> None:
    world.failed("r1")

    events = api.get("/runs/r1/timeline").json()["events"]

    assert [(e["kind"], e["attempt"]) for e in events] == [
        ("run_created", None),
        ("attempt_opened", 1),
        ("attempt_started", 1),
        ("attempt_ended", 1),
        ("attempt_opened", 2),
        ("attempt_started", 2),
        ("attempt_ended", 2),
        ("run_finished", None),
    ]
    assert events[3]["detail"] == "failed (missing_input): exit 1"


def test_a_log_can_be_followed_by_offset(world: Any, api: httpx.Client) -> None:
    run = world.opened(world.new_run("r1"), "extract")
    attempt = AttemptId(RunId("r1"), TaskName("extract"), 1)
    world.logs.append(attempt, 0, b"one\n")

    first = api.get("/runs/r1/tasks/extract/log")
    assert (first.content, first.headers["X-Log-End"], first.headers["X-Attempt-State"]) == (
        b"one\n",
        "4",
        "open",
    )

    world.logs.append(attempt, 4, "zw\xf6lf\n".encode())
    world.ended(run, "extract", Outcome.SUCCEEDED)
    second = api.get("/runs/r1/tasks/extract/log", params={"offset": 4, "attempt": 1})
    assert second.content.decode() == "zw\xf6lf\n"
    assert (second.headers["X-Log-Offset"], second.headers["X-Log-End"]) == ("4", "11")
    assert second.headers["X-Attempt-State"] == "succeeded"
    assert api.get("/runs/r1/tasks/extract/log", params={"offset": 11}).content == b""
    assert api.get("/runs/r1/tasks/extract/log", params={"limit": 2}).content == b"on"


def test_event_log_is_read_by_offset_as_bytes(world: Any, api: httpx.Client) -> None:
    world.succeeded("r1")
    attempt = AttemptId(RunId("r1"), TaskName("extract"), 1)
    world.logs.append(attempt, 0, b"text")
    world.logs.append(attempt, 0, b"\x28\xb5events", KeptLog.EVENTS)

    found = api.get("/runs/r1/tasks/extract/events", params={"offset": 1, "limit": 3})

    assert (found.content, found.headers["X-Log-End"]) == (b"\xb5ev", "4")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["X-Attempt-State"] == "succeeded"
    assert api.get("/runs/r1/tasks/load/events").content == b""


def test_the_log_of_an_attempt_can_be_read_when_the_record_only_counts_it(
    world: Any, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "PAGE", 1)
    world.failed("r1")
    world.logs.append(AttemptId(RunId("r1"), TaskName("extract"), 1), 0, b"one\n")

    first = api.get("/runs/r1/tasks/extract/log", params={"attempt": 1})
    extract = api.get("/runs/r1").json()["tasks"][0]
    last = api.get("/runs/r1/tasks/extract/log")
    none = api.get("/runs/r1/tasks/extract/log", params={"attempt": 3})

    assert (first.content, first.headers["X-Attempt-State"]) == (b"one\n", "ended")
    assert [attempt["number"] for attempt in extract["attempts"]] == [2]
    assert extract["why"] == "failed after 2 attempts: failed (missing_input): exit 1"
    assert (last.headers["X-Attempt"], last.headers["X-Attempt-State"]) == ("2", "failed")
    assert none.json()["detail"].endswith("has no attempt 3; the last is 2.")


def test_a_standby_is_ready_and_a_scheduler_without_zookeeper_is_not(world: Any, api_url: str) -> None:
    standby = httpx.get(f"{api_url}/readyz")
    world.health.checks.append(ReadinessCheck(name="zookeeper", ok=False, detail="no connection"))
    cut_off = httpx.get(f"{api_url}/readyz")

    assert (standby.status_code, standby.json()["ready"]) == (200, True)
    assert (cut_off.status_code, cut_off.json()["checks"][-1]["detail"]) == (503, "no connection")
    assert httpx.get(f"{api_url}/healthz").json()["status"] == "ok"


def test_metrics_count_requests_by_route_and_never_by_run(
    world: Any, api: httpx.Client, api_url: str
) -> None:
    world.succeeded("r1")
    api.get("/runs/r1")
    api.get("/runs/absent")

    text = httpx.get(f"{api_url}/metrics").text

    assert 'route="/api/v1/runs/{run_id}",status="200"' in text
    assert 'route="/api/v1/runs/{run_id}",status="404"' in text
    assert "r1" not in text


def test_openapi_describes_every_route(api_url: str) -> None:
    paths = httpx.get(f"{api_url}/openapi.json", timeout=60).json()["paths"]

    assert {"/api/v1/participants", "/api/v1/runs/{run_id}/tasks/{task}/log", "/readyz"} <= paths.keys()
    assert "delete" in paths["/api/v1/pipelines/{name}"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/pipelines/absent", "unknown_pipeline"),
        ("/runs/absent", "unknown_run"),
        ("/runs/absent/timeline", "unknown_run"),
        ("/runs/absent/tasks/x/log", "unknown_run"),
        ("/runs/r1/tasks/absent/log", "unknown_task"),
        ("/runs/r1/tasks/load/log", "no_attempt"),
        ("/runs/r1/tasks/extract/log?attempt=2", "unknown_attempt"),
        ("/commands/cmd-9", "unknown_command"),
        ("/nowhere", "not_found"),
    ],
)
def test_what_is_not_there_is_a_404_with_a_code(world: Any, api: httpx.Client, path: str, code: str) -> None:
    world.opened(world.new_run("r1"), "extract")

    answer = api.get(path)

    assert (answer.status_code, answer.json()["code"]) == (404, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_pipeline_whose_release_is_not_on_the_disk_is_shown_without_its_tasks(
    world: Any, api: httpx.Client
) -> None:
    world.cluster.put(replace(world.record, release=ReleaseDigest("0" * 64)))

    found = api.get("/pipelines/sums").json()

    assert (found["description"], found["tasks"], found["spec"]) == ("Adds things up", 2, None)


def test_results_of_tasks_are_read_from_their_ends_and_later_from_history(
    world: Any, api: httpx.Client
) -> None:
    run = world.opened(world.new_run("r1"), "extract")
    run = world.ended(run, "extract", Outcome.SUCCEEDED, result={"rows": 3})
    world.opened(run, "load")
    given = {"run_id": "r1", "results": {"extract": {"rows": 3}}, "complete": True}

    assert api.get("/runs/r1/results").json() == given
    assert api.get("/runs/r1/results?task=load").json()["results"] == {}
    assert api.get("/runs/r1/results?task=nothing").status_code == 404
    assert api.get("/runs/r1").json()["tasks"][0]["attempts"][0]["has_result"]
    world.history.store_results(RunId("r1"), {TaskName("extract"): {"rows": 3}})
    world.cluster.set_slots(AttemptId(RunId("r1"), TaskName("extract"), 1), Slots())
    assert api.get("/runs/r1/results").json() == given
    world.history.store_results(RunId("r2"), {TaskName("extract"): {"rows": 4}})
    world.history.store(replace(run, id=RunId("r2")))
    assert api.get("/runs/r2/results").json()["results"] == {"extract": {"rows": 4}}
    reused = Reused(run=RunId("r2"), attempt=None, result={"rows": 4})
    extract = replace(run.tasks[TaskName("extract")], attempts=(), reused=reused)
    world.cluster.put(replace(run, id=RunId("r3"), tasks=run.tasks.replaced([extract])))
    assert api.get("/runs/r3/results?task=extract").json()["results"] == {"extract": {"rows": 4}}
