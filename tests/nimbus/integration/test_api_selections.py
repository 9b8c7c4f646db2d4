"""Selections of runs and pipelines: preview, limit, token, report; notes about runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from nimbus.domain.commands import ActOnSelection, NoteRun
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.runs.purge import RunNote
from nimbus.domain.runs.run import Paused, RunState

RUNS = "/selections/preview"


@pytest.fixture
def runs(world: Any) -> None:
    """Ten runs of `nightly`: live ones of which one is paused, and ended ones of which two are in history."""
    first = world.cluster.world.pipelines[PipelineName("sums")]
    tagged = replace(first.profile, tags=("nightly",))
    world.cluster.put(replace(first, name=PipelineName("nightly"), profile=tagged, owner="finance"))
    for number in range(10):
        at = world.clock.time + timedelta(seconds=number)
        state = RunState.RUNNING if number < 5 else RunState.FAILED if number < 9 else RunState.SUCCEEDED
        run = world.new_run(
            f"r{number}",
            pipeline=PipelineName("nightly"),
            created_at=at,
            state=state,
            finished_at=at if state.is_final else None,
            paused=Paused(by="ann", at=at) if number == 4 else None,
        )
        (world.history.store if number in (5, 6) else world.cluster.put)(run)
    world.cluster.put(world.new_run("other", state=RunState.RUNNING))


def preview(api: httpx.Client, **body: Any) -> Any:
    answer = api.post(RUNS, json=body)
    return [one["name"] for one in answer.json()["targets"]] if answer.is_success else answer.json()["code"]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"action": "stop", "filter": {"tag": "nightly"}}, ["r0", "r1", "r2", "r3", "r4"]),
        ({"action": "pause", "filter": {"owner": "finance"}}, ["r0", "r1", "r2", "r3"]),
        ({"action": "resume", "filter": {}}, ["r4"]),
        ({"action": "rerun", "filter": {"tag": "nightly", "state": "failed"}}, ["r5", "r6", "r7", "r8"]),
        ({"action": "rerun", "filter": {"pipeline": "nightly"}}, ["r5", "r6", "r7", "r8", "r9"]),
        ({"action": "rerun", "names": ["r5", "r9", "r5"]}, ["r5", "r9"]),
        ({"action": "stop", "names": ["other"]}, ["other"]),
        ({"action": "pause", "of": "pipelines", "filter": {"tag": "nightly"}}, ["nightly"]),
        ({"action": "stop", "filter": {"tag": "daily"}}, "nothing_selected"),
        ({"action": "resume", "of": "pipelines", "filter": {}}, "nothing_selected"),
        ({"action": "pause", "of": "pipelines", "filter": {"state": "running"}}, "bad_selection"),
        ({"action": "pause", "of": "pipelines", "filter": {"from": "2026-03-01"}}, "bad_selection"),
        ({"action": "pause", "of": "pipelines", "filter": {"parameter": ["month=3"]}}, "bad_selection"),
        ({"action": "stop", "filter": {}, "limit": 5}, "selection_too_large"),
        ({"action": "stop", "names": ["r0", "r9"]}, "bad_selection"),
        ({"action": "stop", "names": ["r0", "unknown"]}, "bad_selection"),
        ({"action": "rerun", "names": ["r0"]}, "bad_selection"),
        ({"action": "stop", "of": "pipelines", "names": ["nightly"]}, "bad_selection"),
        ({"action": "resume", "of": "pipelines", "names": ["nightly"]}, "bad_selection"),
        ({"action": "stop"}, "bad_selection"),
        ({"action": "stop", "names": ["r0"], "filter": {}}, "bad_selection"),
        ({"action": "stop", "filter": {"state": "lost"}}, "invalid_request"),
        ({"action": "stop", "filter": {}, "limit": 1001}, "invalid_request"),
    ],
)
def test_selection_is_shown_or_refused_before_anything_is_done(
    world: Any, api: httpx.Client, body: dict[str, Any], expected: Any
) -> None:
    assert preview(api, **body) == expected
    assert not world.accepted


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "grants",
            {"who": "ada", "role": "viewer", "on": "fin", "reason": "x"},
            "body.on: must be `pipeline:NAME`",
        ),
        ("grants", {"who": "a b", "role": "viewer", "on": "f_*", "reason": "x"}, "body.who: must be a name"),
        (
            "selections/preview",
            {"action": "stop", "filter": {"tag": "B C"}},
            "body.filter.tag: must be 1 to 63",
        ),
        (
            "selections/preview",
            {"action": "stop", "filter": {"parameter": ["month"]}},
            "body.filter.parameter.0: must be NAME=VALUE",
        ),
    ],
)
def test_text_of_another_form_is_refused_in_words(
    api: httpx.Client, path: str, body: dict[str, Any], message: str
) -> None:
    answer = api.post(f"/{path}", json=body)

    assert answer.status_code == 422
    assert message in answer.json()["detail"]
    assert "pattern" not in answer.json()["detail"]


@pytest.mark.usefixtures("runs")
def test_selection_of_the_preview_is_carried_out_and_reported(world: Any, api: httpx.Client) -> None:
    asked = {"action": "stop", "filter": {"tag": "nightly"}}
    token = api.post(RUNS, json=asked).json()["token"]

    answer = api.post("/selections", params={"wait": 1}, json={**asked, "reason": "incident", "token": token})

    assert answer.status_code == 200
    names = ["r0", "r1", "r2", "r3", "r4"]
    expected = ActOnSelection(
        action="stop", of="runs", targets=dict.fromkeys(names, "nightly"), reason="incident"
    )
    assert world.accepted == [expected]
    command = answer.json()["command_id"]
    found = api.get("/commands", params={"of": command}).json()["commands"]
    assert sorted(row["command_id"] for row in found) == [f"{command}-{n:04d}" for n in range(5)]
    assert {row["kind"] for row in found} == {"stop_run"}
    assert api.get(f"/commands/{command}-0003").json()["status"] == "accepted"


@pytest.mark.usefixtures("runs")
def test_selection_that_has_changed_since_its_preview_does_nothing(world: Any, api: httpx.Client) -> None:
    asked = {"action": "pause", "filter": {"tag": "nightly"}}
    token = api.post(RUNS, json=asked).json()["token"]
    world.cluster.put(world.new_run("late", pipeline=PipelineName("nightly"), state=RunState.RUNNING))

    late = api.post("/selections", json={**asked, "reason": "incident", "token": token})
    without = api.post("/selections", json={**asked, "reason": "incident"})

    assert (late.status_code, late.json()["code"]) == (409, "selection_changed")
    assert (without.status_code, without.json()["code"]) == (409, "no_preview")
    assert not world.accepted


@pytest.mark.usefixtures("runs")
def test_pipelines_are_resumed_with_their_active_releases(world: Any, api: httpx.Client) -> None:
    record = world.cluster.world.pipelines[PipelineName("nightly")]
    world.cluster.put(replace(record, state=PipelineState.PAUSED))

    body = {"action": "resume", "of": "pipelines", "names": ["nightly"], "reason": "over"}
    assert api.post("/selections", params={"wait": 1}, json=body).status_code == 200

    assert world.accepted[0].targets == {"nightly": record.release or record.published}


@pytest.mark.usefixtures("runs")
def test_command_line_shows_asks_and_reports(world: Any, nimbus: Any) -> None:
    world.cluster.put(world.new_run("r-bad", pipeline=PipelineName("nightly"), state=RunState.RUNNING))
    words = ("select", "stop", "--tag", "nightly", "--reason", "incident")

    dry = nimbus(*words, "--dry-run")
    no = nimbus(*words, stdin="n\n")
    assert not world.accepted
    yes = nimbus(*words, "--yes")

    assert (dry.exit_code, no.exit_code, yes.exit_code) == (0, 130, 4)
    assert "r0" in dry.output
    assert "Stop 6 runs?" in no.output
    assert ("nothing was done" in no.output, "interrupted" in no.output) == (True, False)
    assert "5 done, 1 refused, 0 not decided yet" in yes.output
    assert "run_finished" in yes.output
    assert nimbus("select", "stop", "--tag", "daily", "--dry-run").exit_code == 4
    assert nimbus("select", "stop", "r0", "--tag", "daily", "--dry-run").exit_code == 2


@pytest.mark.usefixtures("runs")
def test_note_about_an_ended_run_is_sent_and_shown(world: Any, api: httpx.Client, nimbus: Any) -> None:
    sent = nimbus("run", "note", "r5", "known, ticket 12", "--task", "extract")
    world.history.put_note(RunNote(what=world.accepted[0], at=world.clock.time, by="ann"))

    assert sent.exit_code == 0
    asked = NoteRun(run_id="r5", pipeline="nightly", text="known, ticket 12", task="extract")
    assert world.accepted == [asked]
    assert api.get("/runs/r5").json()["noted"]["text"] == "known, ticket 12"
    assert "extract: known, ticket 12 (ann" in nimbus("run", "show", "r5").output
    page = api.get(str(api.base_url).rstrip("/").replace("/api/v1", "/ui/runs/r5")).text
    assert "known, ticket 12" in page
    assert api.get("/runs/r8").json()["noted"] is None
    assert api.put("/runs/r5/note", json={"text": "x", "task": "unknown"}).status_code == 404


def test_late_note_of_a_deposed_leader_replaces_no_later_one(world: Any) -> None:
    note = RunNote(what=NoteRun(run_id="r5", pipeline="p", text="new"), at=world.clock.time, by="ann")
    older = replace(note, what=replace(note.what, text="old"), at=note.at - timedelta(seconds=1))

    world.history.put_note(note)
    world.history.put_note(older)
    assert world.history.note("r5") == note

    world.history.put_note(replace(note, what=replace(note.what, text="")))
    assert world.history.note("r5") is None


@pytest.mark.usefixtures("runs")
def test_runs_that_are_ticked_in_the_list_are_stopped_after_a_preview(world: Any, api: httpx.Client) -> None:
    url = str(api.base_url).rstrip("/").replace("/api/v1", "/ui")
    shown = api.get(f"{url}/runs").text
    assert 'name="name" value="r0" form="selection"' in shown

    asked = {"action": "stop", "name": ["r0", "r1"]}
    page = api.get(f"{url}/selection", params=asked).text
    assert "Stop 2 runs?" in page
    assert not world.accepted
    assert "r9 is succeeded" in api.get(f"{url}/selection", params={"action": "stop", "name": "r9"}).text
    assert "tick some" in api.get(f"{url}/selection", params={"action": "stop"}).text

    done = api.post(f"{url}/selection", data={**asked, "reason": "incident"}, follow_redirects=True)

    (sent,) = world.accepted
    assert (sent.action, sent.reason) == ("stop", "incident")
    assert sent.targets == {"r0": "nightly", "r1": "nightly"}
    assert done.url.path == "/ui/commands"
    assert done.text.count("stop run") >= 2
