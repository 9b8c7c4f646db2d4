"""Attacks over HTTP on a real server, as a table. All are refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from nimbus.access.gate import AccessGate, Presented, RateLimit
from nimbus.access.tokens import new_token
from nimbus.adapters.s3_purges import S3Purges
from nimbus.api.access import NEEDS
from nimbus.api.app import create_app
from nimbus.api.paging import decoded
from nimbus.api.routes.events import MAX_OF_ONE
from nimbus.api.server import ApiServer
from nimbus.domain.cluster.access import AccessGrant, AccessRole, Principal, PrincipalSource, Token
from nimbus.domain.cluster.settings import ClusterCalendar, ClusterSettings, Hold, HoldOf
from nimbus.domain.commands import CommandOutcome, CreateBackfill, NoteRun, QueuedCommand
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Publication
from nimbus.domain.ids import BackfillId, CommandId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.backfill import BackfillRequest
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.catalog import Skips
from nimbus.domain.pipelines.pipeline import TaskKind, TaskSpec
from nimbus.domain.runs.purge import Purged, RunNote, Said
from nimbus.domain.runs.run import RunPart, RunState
from nimbus.domain.runs.task_run import Outcome, Reused, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.scheduler.output_files import FolderFiles
from nimbus.web.home.attention import why_failed
from nimbus.worker.data.folder_checks import MARK
from tests.nimbus.definitions import active
from tests.nimbus.integration.conftest import World
from tests.nimbus.one_application import application

T0 = datetime(2026, 3, 1, tzinfo=UTC)
FILLED = {
    "{alert}": "a",
    "{backfill}": "b",
    "{command_id}": "cmd-0000000001",
    "{hold}": "h1",
    "{name}": "sums",
    "{pipeline}": "sums",
    "{run_id}": "r1",
    "{task}": "extract",
    "{token_id}": "0" * 12,
    "{digest}": "a" * 64,
    "{team}": "finance",
    "{verb}": "pause",
    "{worker}": "w1",
}


@dataclass
class Secured:
    """A server that requires tokens, and a token for each role."""

    world: World
    url: str
    texts: dict[str, str]
    tokens: dict[str, Token]

    def queued(self) -> tuple[QueuedCommand, ...]:
        """Commands of this test."""
        return self.world.reader.commands()

    def ask(self, method: str, path: str, who: str = "", **request: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.texts[who]}"} if who else {}
        headers |= request.pop("headers", {})
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=30, **request)

    def know(self, *tokens: Token) -> None:
        """Add tokens to the cluster."""
        by_id = {token.id: token for token in tokens}
        self.world.cluster.put(ClusterSettings(tokens=by_id))
        self.world.gate.know_store(by_id, b"k" * 32)


@pytest.fixture
def secured(world: World, request: pytest.FixtureRequest) -> Iterator[Secured]:
    texts, tokens = {}, {}
    for name in AccessRole:
        made = new_token()
        texts[name] = made.text
        tokens[name] = Token(id=made.id, name=name, role=name, sha256=made.sha256, created_at=T0)
    world.deciding, world.gate.required = False, True
    world.gate._failures = RateLimit(1e9, 1e9)
    is_own = request.node.get_closest_marker("own_application") is not None
    server = ApiServer(application(world.services(), own=is_own))
    server.start()
    secured = Secured(world, server.url, texts, tokens)
    secured.know(*tokens.values())
    yield secured
    server.stop()


PAGES = (
    "/",
    "/about",
    "/backfills",
    "/commands",
    "/datasets",
    "/election",
    "/lineage",
    "/pipelines",
    "/pipelines/sums",
    "/pipelines/sums/releases",
    "/runs",
    "/runs/r1",
    "/runs/r1/tasks/extract",
    "/runs/r1/tasks/extract/log",
    "/search?q=su",
    "/workers",
)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def filled(route: str) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    for name, value in FILLED.items():
        path = path.replace(name, value)
    assert "{" not in path, f"say in FILLED what {path} is asked with"
    return method, path


def test_every_route_is_refused_without_a_token_and_queues_nothing(secured: Secured) -> None:
    answers = {route: code(secured.ask(*filled(route))) for route in NEEDS}

    assert answers == dict.fromkeys(NEEDS, (401, "token_missing"))
    assert secured.queued() == ()


def test_every_route_is_refused_to_the_next_lower_role_and_queues_nothing(secured: Secured) -> None:
    order = list(AccessRole)
    lower = {route: order[order.index(role) - 1] for route, role in NEEDS.items() if role != "none"}
    answers = {route: code(secured.ask(*filled(route), role)) for route, role in lower.items()}

    assert answers == dict.fromkeys(lower, (403, "role_too_low"))
    assert secured.queued() == ()


def test_pages_ask_who_sends_and_viewers_change_nothing(secured: Secured) -> None:
    pages = ["/ui/", "/ui/runs", "/ui/runs/r1", "/ui/runs/r1/tasks/extract/log", "/ui/search?q=r", "/ui/help"]
    pages += [
        "/ui/pipelines",
        "/ui/pipelines/sums",
        "/ui/pipelines/sums/releases",
        "/ui/workers",
        "/ui/election",
    ]
    pages += ["/ui/commands", "/ui/about"]
    forms = [f"/ui/runs/r1/{verb}" for verb in ("stop", "pause", "resume", "rerun", "tasks/extract/approval")]
    forms += [f"/ui/pipelines/sums/{verb}" for verb in ("start", "pause", "activate")]
    forms += ["/ui/election/abdicate"]
    form = {"reason": "x", "scope": "all", "approved": "true"}

    strangers = {code(secured.ask("GET", path)) for path in pages}
    strangers |= {code(secured.ask("POST", path, data=form)) for path in forms}
    viewers = {secured.ask("POST", path, "viewer", data=form) for path in forms}

    assert strangers == {(401, "token_missing")}
    assert {answer.status_code for answer in viewers} == {403}
    assert all("role_too_low" in answer.text for answer in viewers)
    assert secured.ask("GET", "/ui/runs", "viewer").status_code == 200
    assert secured.queued() == ()


def test_member_of_another_team_learns_of_no_pipeline_and_changes_none(secured: Secured) -> None:
    stranger = replace(secured.tokens[AccessRole.NONE], teams=("other",))
    roles = [(on, AccessRole.AUTHOR) for on in ("team:other", "other_*")]
    grants = tuple(AccessGrant(who="other", role=role, on=on, at=T0) for on, role in roles)
    known = {token.id: token for token in (*secured.tokens.values(), stranger)}
    secured.world.cluster.put(replace(secured.world.record, owner="data"))
    secured.world.cluster.put(ClusterSettings(tokens=known, grants=grants, variables={"sums": "1"}))
    secured.world.gate.know_store(known, b"k" * 32, grants)
    secured.world.opened(secured.world.new_run("r1"), "extract")
    request = BackfillRequest(first=T0, last=T0, total=1)
    fill = CreateBackfill(pipeline=secured.world.spec.name, backfill=BackfillId("b"), request=request)
    secured.world.cluster.put(secured.world._backfill(fill))
    routes = [route for route in NEEDS if route != "GET /api/v1/events"]
    routes += [f"GET /ui{path}" for path in PAGES]
    named = re.compile(r"\b(?:sums|r1)\b")

    def learns(who: str) -> set[str]:
        asked = {route: secured.ask(*filled(route), who) for route in routes if route.startswith("GET")}
        found = {route for route, answer in asked.items() if answer.is_success and named.search(answer.text)}
        assert all(answer.status_code < 500 for answer in asked.values())
        return found

    assert learns("none") == set()
    assert len(learns("viewer")) >= 20, "so the test can fail"
    writes = [route for route in NEEDS if not route.startswith("GET")]
    bodies = {"POST /api/v1/runs": {"pipeline": "sums"}}
    answers = [secured.ask(*filled(route), "none", json=bodies.get(route, {})) for route in writes]
    assert {answer.status_code for answer in answers} <= {403, 404, 422}
    assert secured.queued() == ()


def test_role_on_a_pipeline_shows_as_much_as_it_says(secured: Secured) -> None:
    token = replace(secured.tokens[AccessRole.NONE], name="ada")
    known = {**secured.world.gate._known(), token.id: token}
    world = secured.world
    run = world.ended(
        world.opened(world.new_run("r3", parameters={"code": "hidden"}), "extract"), "extract", Outcome.FAILED
    )
    world.cluster.put(replace(run, reason="because"))

    elsewhere = AccessGrant(who="ada", role=AccessRole.AUTHOR, on="other_*", at=T0)

    def seen(role: AccessRole) -> tuple[int, int, int, str, object]:
        grant = AccessGrant(who="ada", role=role, on="pipeline:sums", at=T0)
        world.gate.know_store(known, b"k" * 32, (grant, elsewhere))
        shown = secured.ask("GET", "/api/v1/runs/r3", "none").json()
        log, results, stop = (
            secured.ask(
                method, f"/api/v1/runs/r3/{path}", "none", json={"reason": "x"} if method == "POST" else None
            ).status_code
            for method, path in (("GET", "tasks/extract/log"), ("GET", "results"), ("POST", "stop"))
        )
        return log, results, stop, shown["reason"], shown["parameters"]

    assert seen(AccessRole.STATUS) == (403, 403, 403, "", {})
    assert seen(AccessRole.LOGS) == (200, 403, 403, "because", {})
    assert seen(AccessRole.VIEWER) == (200, 200, 403, "because", {"code": "hidden"})
    assert seen(AccessRole.OPERATOR) == (200, 200, 202, "because", {"code": "hidden"})


def member(secured: Secured, *roles: tuple[str, AccessRole]) -> None:
    """Let the token `none` be a member of team `other`, whose grants are these roles."""
    stranger = replace(secured.tokens[AccessRole.NONE], teams=("other",))
    grants = tuple(AccessGrant(who="other", role=role, on=on, at=T0) for on, role in roles)
    known = {token.id: token for token in (*secured.tokens.values(), stranger)}
    world = secured.world
    world.cluster.put(replace(world.record, owner="data"))
    others = replace(world.spec, name=PipelineName("other_sums"))
    world.cluster.put(active(others, owner="other"))
    world.cluster.put(replace(world.reader.settings(), tokens=known, grants=grants))
    world.gate.know_store(known, b"k" * 32, grants)


@pytest.mark.own_application
def test_pages_keep_what_others_have_read_from_those_who_may_not_see_it(secured: Secured) -> None:
    """Pages read history once for all; what was read for an admin must not be shown to somebody else."""
    world = secured.world
    ended = world.clock.now() - timedelta(hours=9)
    night = replace(world.failed("night"), created_at=ended, started_at=ended, finished_at=ended)
    world.history.store(night)
    world.cluster.set("runs", night.id, None)
    paths = ("/ui/", "/ui/pipelines", "/ui/pipelines/sums", "/ui/runs/night")

    def seen(who: str) -> list[str]:
        return [answer.text if (answer := secured.ask("GET", path, who)).is_success else "" for path in paths]

    why = why_failed(night)
    for _ in range(200):  # the rest of the day is read after an answer
        shown = seen("admin")
        if "1 run, 1 failed" in shown[0]:
            break
    assert why in unescape(shown[0])
    assert all("night" in text or "sums" in text for text in shown)

    member(secured, ("team:other", AccessRole.AUTHOR))
    assert not [text for text in seen("none") if re.search(r"\b(?:night|sums)\b", text)]
    member(secured, ("pipeline:sums", AccessRole.STATUS))
    assert ["night" in seen("none")[0], why in unescape(seen("none")[0])] == [True, False]
    member(secured, ("pipeline:sums", AccessRole.LOGS))
    assert ["night" in seen("none")[0], why in unescape(seen("none")[0])] == [True, True]


def test_id_of_an_ended_run_that_may_not_be_seen_is_not_used_again(secured: Secured) -> None:
    member(secured, ("team:other", AccessRole.AUTHOR))
    world = secured.world
    world.history.store(world.new_run("r8", state=RunState.SUCCEEDED, finished_at=T0))
    own = world.new_run("own", pipeline=PipelineName("other_sums"), state=RunState.FAILED, finished_at=T0)
    world.cluster.put(own)

    answers = [
        secured.ask("POST", "/api/v1/runs", "none", json={"pipeline": "other_sums", "run_id": "r8"}),
        secured.ask("POST", "/api/v1/runs/own/rerun", "none", json={"scope": "all", "run_id": "r8"}),
    ]

    assert [code(answer) for answer in answers] == [(409, "run_exists")] * 2
    assert secured.queued() == ()


def test_lists_of_runs_are_read_to_the_end_by_cursors_that_name_no_hidden_run(secured: Secured) -> None:
    member(secured, ("team:other", AccessRole.VIEWER))
    world = secured.world
    own = [f"own-{number}" for number in range(3)]
    for name in (*own, *(f"{letter}-hidden-{number}" for letter in "az" for number in range(7))):
        of = PipelineName("other_sums" if name in own else "sums")
        for after_s in (0, 5):
            at = T0 + timedelta(seconds=after_s)
            run = world.new_run(f"{name}-{after_s}", pipeline=of, created_at=at, finished_at=at)
            world.history.store(replace(run, state=RunState.SUCCEEDED))
    found, cursor = list[str](), ""
    for _ in range(40):
        page = secured.ask("GET", f"/api/v1/runs?limit=1{cursor}", "none").json()
        found += [run["id"] for run in page["runs"]]
        if page["next_cursor"] is None:
            break
        assert "hidden" not in str(decoded(page["next_cursor"]))
        cursor = f"&cursor={page['next_cursor']}"

    assert found == [f"{name}-{after_s}" for after_s in (5, 0) for name in own]


def test_purge_of_a_run_that_may_not_be_seen_is_not_told(secured: Secured) -> None:
    member(secured, ("team:other", AccessRole.VIEWER))
    world = secured.world
    said = Said(at=T0, by="ada", why="hidden")
    gone = Purged(run=RunId("r8"), pipeline=world.spec.name, created_at=T0, parts={RunPart.HISTORY: said})
    S3Purges(world.releases.bucket).note(gone)

    told = {who: secured.ask("GET", "/api/v1/runs/r8", who).text for who in ("none", "viewer")}

    assert ["hidden" in told[who] for who in ("none", "viewer")] == [False, True]


def test_role_on_a_pipeline_shows_reasons_and_notes_as_it_says(secured: Secured) -> None:
    world = secured.world
    run = world.opened(world.new_run("r3", parameters={"code": "hidden value"}), "extract")
    run = world.ended(run, "extract", Outcome.FAILED, reason="hidden end")
    over = {"state": RunState.FAILED, "finished_at": T0, "note": "hidden note", "reason": "hidden reason"}
    world.cluster.put(replace(run, **over))
    gate = TaskSpec(name=TaskName("gate"), kind=TaskKind.APPROVAL, script="", args=("hidden prompt",))
    world.cluster.put(world.new_run("r4", tasks=Tasks([TaskRun(spec=gate)])))
    note = NoteRun(run_id=run.id, pipeline=run.pipeline, text="hidden remark")
    world.history.put_note(RunNote(what=note, at=T0, by="ada"))
    refused = CommandOutcome(
        command=CommandId("cmd-0000000009"),
        accepted=False,
        code="bad_parameters",
        message="hidden message",
        decided_at=T0,
        epoch=7,
        run_id=RunId("r9"),
        kind="start_run",
        pipeline=run.pipeline,
        submitted_by="eve",
        asked_by=Principal(
            name="eve", role=AccessRole.ADMIN, source=PrincipalSource.TOKEN, reason="hidden cause"
        ),
    )
    world.cluster.set("outcomes", refused.command, refused)
    secured.ask("POST", "/api/v1/pipelines/sums/rewind", "admin", json={"reason": "hidden why"})
    skips = Skips().with_fires((T0,), "hidden skip", after=None, now=T0)
    world.cluster.put(replace(world.record, schedule_position=T0, skips=skips))
    of_api = ("commands", "commands/cmd-0000000009", "runs", "runs/r3", "runs/r9", "runs/r3/timeline")
    of_api += ("pipelines/sums", "pipelines/sums/explanation")
    of_pages = ("", "commands", "runs", "runs/r3", "pipelines/sums", "runs/r3/tasks/extract")
    paths = [f"/api/v1/{path}" for path in of_api] + [f"/ui/{path}" for path in of_pages]
    paths += [
        "/api/v1/runs?parameter=code=hidden%20value",
        "/api/v1/runs/r4/explanation",
        "/api/v1/runs/r4",
        "/ui/runs/r4",
    ]

    def told(role: AccessRole) -> set[str]:
        member(secured, ("pipeline:sums", role))
        return {
            said
            for path in paths
            for said in re.findall(r"hidden \w+", secured.ask("GET", path, "none").text)
        }

    reasons = {"hidden end", "hidden reason", "hidden message", "hidden cause", "hidden why", "hidden skip"}
    assert told(AccessRole.STATUS) == set()
    assert told(AccessRole.LOGS) == reasons
    assert told(AccessRole.VIEWER) == {
        *reasons,
        "hidden note",
        "hidden remark",
        "hidden value",
        "hidden prompt",
    }


def test_holds_are_shown_to_the_teams_that_they_hold_and_calendars_to_viewers(
    secured: Secured,
) -> None:
    member(secured, ("team:other", AccessRole.STATUS))
    holds = {
        name: Hold(of=of, name=on, reason=f"because of {name}", held_at=T0)
        for name, of, on in (
            ("all", HoldOf.ALL, ""),
            ("own", HoldOf.TEAM, "other"),
            ("theirs", HoldOf.PREFIX, "sums"),
        )
    }
    days = {"bank": ClusterCalendar(days=Calendar(), reason="because of branches", set_at=T0)}
    secured.world.cluster.put(replace(secured.world.reader.settings(), holds=holds, calendars=days))

    def shown(path: str, who: str) -> set[str]:
        answer = secured.ask("GET", path, who)
        assert answer.status_code == 200, answer.text
        return set(re.findall(r"because of (\w+)", answer.text))

    for path in ("/api/v1/holds", "/ui/pipelines"):
        assert shown(path, "none") == {"all", "own"}
        assert shown(path, "status") == {"all", "own", "theirs"}
    assert shown("/ui/pipelines", "viewer") == {"all", "own", "theirs", "branches"}
    member(secured)
    assert shown("/api/v1/holds", "none") == shown("/ui/pipelines", "none") == set()


def test_strangers_learn_nothing_of_the_cluster_from_a_file_that_is_none(secured: Secured) -> None:
    answer = secured.ask("GET", "/ui/static/any/none")

    assert (answer.status_code, answer.text) == (404, "")


def test_streams_are_counted_by_token_and_not_by_address(secured: Secured) -> None:
    with ExitStack() as streams:
        answers = []
        for who in ["viewer"] * (MAX_OF_ONE + 1) + ["operator"]:
            client = streams.enter_context(httpx.Client(timeout=60))
            answer = streams.enter_context(
                client.stream(
                    "GET",
                    f"{secured.url}/api/v1/events?topic=runs",
                    headers={"Authorization": f"Bearer {secured.texts[who]}"},
                )
            )
            answers.append(answer.status_code)

    assert answers == [200] * MAX_OF_ONE + [429, 200]


def test_methods_that_are_none_make_no_series_of_their_own(secured: Secured) -> None:
    for number in range(3):
        secured.ask(f"MADEUP{number}", "/api/v1/runs")

    metrics = secured.ask("GET", "/metrics", "viewer").text

    assert "MADEUP" not in metrics
    assert 'method="other"' in metrics


def test_refusals_that_are_too_many_are_not_logged_and_long_paths_are_cut(
    secured: Secured,
) -> None:
    secured.world.gate._failures = RateLimit(1e-9, 2)
    with capture_logs() as lines:
        for _ in range(5):
            secured.ask("GET", "/api/v1/runs/" + "x" * 20_000)

    said = [line["path"] for line in lines if line["event"] == "request_denied"]
    assert said == [("/api/v1/runs/" + "x" * 200)[:200]] * 2


MADE_UP: tuple[tuple[dict[str, str], str], ...] = (
    ({"Authorization": "Bearer nbs_000000000000_" + "A" * 43}, "token_unknown"),
    ({"Authorization": "Bearer " + "A" * 5000}, "token_unknown"),
    ({"Authorization": "Bearer"}, "token_unknown"),
    ({"Authorization": "Basic YWRtaW46YWRtaW4="}, "bad_scheme"),
    ({"Authorization": "bearer\tx"}, "bad_scheme"),
    ({"X-Nimbus-User": "admin"}, "token_missing"),
    ({"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "admin"}, "token_missing"),
    ({"Forwarded": "for=127.0.0.1"}, "token_missing"),
    ({"Cookie": "nimbus=admin"}, "token_missing"),
    ({"Cookie": "nimbus=000000000000.9999999999." + "0" * 64}, "token_missing"),
    ({"Cookie": "__Host-nimbus=000000000000.9999999999." + "0" * 64}, "token_missing"),
    ({"Cookie": '="; ;;=nimbus'}, "token_missing"),
)


def test_made_up_credentials_are_refused(secured: Secured) -> None:
    answers = [
        code(secured.ask("POST", "/api/v1/pipelines/sums/pause", headers=headers)) for headers, _ in MADE_UP
    ]

    assert answers == [(401, said) for _, said in MADE_UP]
    assert secured.queued() == ()


def test_revoked_or_expired_token_is_refused(secured: Secured) -> None:
    past = replace(secured.tokens["operator"], expires_at=datetime.now(UTC) - timedelta(seconds=1))
    secured.know(past)

    assert code(secured.ask("GET", "/api/v1/runs", "operator")) == (401, "token_expired")
    assert code(secured.ask("GET", "/api/v1/runs", "admin")) == (401, "token_unknown")


def test_token_in_an_address_is_refused_even_with_a_good_header(secured: Secured) -> None:
    text = secured.texts["admin"]
    paths = (
        f"/api/v1/runs?access_token={text}",
        f"/api/v1/runs?x={text}",
        f"/api/v1/runs/{text}",
        "/hooks/sums?token=x",
    )
    answers = [code(secured.ask("GET", path, "admin")) for path in paths]

    assert answers == [(400, "token_in_url")] * len(paths)


def test_author_is_refused_the_pipeline_of_somebody_else(secured: Secured) -> None:
    secured.world.cluster.put(replace(secured.world.record, owner="data"))
    body = {"digest": "a" * 64}
    theirs = [
        secured.ask("POST", "/api/v1/pipelines/sums/releases", "author", json=body),
        secured.ask("DELETE", "/api/v1/pipelines/sums", "author"),
    ]
    assert [code(answer) for answer in theirs] == [(403, "not_owner")] * 2
    assert secured.queued() == ()

    secured.world.cluster.put(replace(secured.world.record, owner="author"))

    assert secured.ask("DELETE", "/api/v1/pipelines/sums", "author").status_code == 202


@pytest.fixture
def outputs(world: World, tmp_path: Path) -> Path:
    """The folder of outputs of the server that starts next."""
    world.outputs = FolderFiles(tmp_path, lambda _given: "mark")
    (tmp_path / MARK).write_text("mark")
    return tmp_path


def test_content_of_a_dataset_is_read_by_its_readers_alone(outputs: Path, secured: Secured) -> None:
    world = secured.world
    checks = Publication(dataset=DatasetName("orders"), of=TaskName("extract"))
    extract, load, *others = world.spec.tasks
    spec = replace(
        world.spec,
        tasks=(extract, replace(load, publishes=(checks,)), *others),
        readers={checks.dataset: ("author",)},
    )
    world.cluster.put(active(spec, owner="data"))
    of = Dataset(name=checks.dataset, pipeline=spec.name, partition=Partitioning.WHOLE)
    world.cluster.set("datasets", of.name, of)
    run = world.opened(world.new_run("r2", tasks=Tasks(TaskRun(spec=task) for task in spec.tasks)), "extract")
    run = world.ended(run, "extract", Outcome.SUCCEEDED, output="one")
    world.ended(world.opened(run, "load"), "load", Outcome.SUCCEEDED, output="two")
    done = run.tasks[TaskName("extract")]
    taken = TaskRun(
        spec=replace(done.spec, publishes=()),
        state=TaskState.SUCCEEDED,
        reused=Reused(run=run.id, attempt=done.committed),
    )
    world.cluster.put(world.new_run("later", tasks=Tasks([taken])))  # of a release that does not publish
    for name in ("one", "two"):
        (outputs / name).mkdir()
        (outputs / name / "part").write_text("rows")
    place = "/api/v1/runs/r2/tasks/{}/output?path=part"
    found = {
        (who, task): secured.ask("GET", place.format(task), who)
        for who in ("operator", "author", "admin")
        for task in ("extract", "load")
    }

    assert {ask: answer.status_code for ask, answer in found.items()} == dict.fromkeys(found, 200) | {
        ("operator", "extract"): 403
    }
    assert found["operator", "extract"].json()["code"] == "not_reader"
    again = "/api/v1/runs/later/tasks/extract/output?path=part"
    assert [secured.ask("GET", again, who).status_code for who in ("operator", "author")] == [403, 200]
    assert secured.ask("GET", "/api/v1/datasets/orders", "viewer").json()["may_read"] == ["author"]
    page = secured.ask("GET", "/ui/datasets/orders", "viewer").text
    assert "<dd>its owner, author, admins</dd>" in page


def test_command_carries_who_asked_and_the_header_that_names_another_is_not_looked_at(
    secured: Secured,
) -> None:
    headers = {"X-Nimbus-User": "somebody-else", "X-Nimbus-Reason": "incident 7"}
    secured.ask("POST", "/api/v1/pipelines/sums/pause", "operator", headers=headers)

    (queued,) = secured.queued()
    asked_by = queued.asked_by
    assert (queued.submitted_by, asked_by.name, asked_by.role) == ("operator", "operator", "operator")
    assert (asked_by.source, asked_by.address, asked_by.reason) == (
        PrincipalSource.TOKEN,
        "127.0.0.1",
        "incident 7",
    )


def test_leaders_refusal_of_a_revoked_token_is_a_403(secured: Secured) -> None:
    secured.world.deciding, secured.world.refuse = True, ("token_revoked", "too late")

    answer = secured.ask("POST", "/api/v1/pipelines/sums/pause?wait=5", "operator")

    assert code(answer) == (403, "token_revoked")


def test_supervisors_and_webhooks_are_answered_without_a_token(secured: Secured) -> None:
    assert secured.ask("GET", "/healthz").status_code == 200
    assert secured.ask("GET", "/readyz").status_code == 200
    assert code(secured.ask("POST", "/hooks/sums"))[1] == "bad_signature"


def test_readiness_says_no_details_to_who_has_no_token(secured: Secured) -> None:
    assert "1 file missing" not in secured.ask("GET", "/readyz").text


def test_who_asks_is_told_who_they_are(secured: Secured) -> None:
    found = secured.ask("GET", "/api/v1/whoami", "author").json()

    assert (found["name"], found["role"], found["source"]) == ("author", "author", "token")


def test_tokens_are_listed_without_anything_that_lets_in(secured: Secured) -> None:
    listed = secured.ask("GET", "/api/v1/tokens", "admin")

    assert {row["name"] for row in listed.json()["tokens"]} == set(secured.texts)
    assert not any(token.sha256 in listed.text for token in secured.tokens.values())


def test_no_token_is_in_the_log_or_an_answer(
    secured: Secured, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    caplog.set_level(logging.DEBUG)
    answers = [
        secured.ask("GET", "/api/v1/runs", who, headers=headers)
        for who in ("viewer", "admin")
        for headers in ({}, {"Authorization": f"Basic {secured.texts[who]}"})
    ]
    answers.append(secured.ask("GET", f"/api/v1/runs?token={secured.texts['admin']}"))
    answers.append(secured.ask("POST", "/api/v1/runs", "operator", content=b"{"))

    # Lines of the client, and lines that the server disables (`access_log`) and pytest enables.
    others = ("httpx", "httpcore", "uvicorn.access")
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(others)]
    said = "".join((*capsys.readouterr(), *ours, *(answer.text for answer in answers)))
    assert [text for text in secured.texts.values() if text.split("_", 2)[2] in said] == []


def test_browser_logs_in_with_a_token_and_out_again(secured: Secured) -> None:
    with httpx.Client(base_url=secured.url, timeout=30) as browser:
        page = browser.get("/ui/pipelines?state=failed", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (
            303,
            "/ui/login?next=%2Fui%2Fpipelines%3Fstate%3Dfailed",
        )
        form = browser.get(page.headers["location"])
        assert 'value="/ui/pipelines?state=failed"' in form.text
        assert "frame-ancestors 'none'" in form.headers["content-security-policy"]

        wrong = browser.post("/ui/login", data={"token": "nbs_x", "next": "/ui"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        done = browser.post("/ui/login", data={"token": secured.texts["viewer"], "next": "/ui/pipelines"})

        assert (done.status_code, done.headers["location"]) == (303, "/ui/pipelines")
        cookie = done.headers["set-cookie"]
        assert all(
            word in cookie for word in ("nimbus=", "HttpOnly", "SameSite=lax", "Path=/", "Max-Age=43200")
        )
        assert secured.texts["viewer"].split("_", 2)[2] not in cookie
        assert browser.get("/api/v1/whoami").json()["name"] == "viewer"
        assert code(browser.post("/api/v1/pipelines/sums/pause"))[0] == 403
        cross = {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}
        assert code(browser.post("/api/v1/pipelines/sums/pause", headers=cross)) == (
            403,
            "cross_site_request",
        )
        assert (
            code(browser.post("/ui/login", data={"token": secured.texts["admin"]}, headers=cross))[0] == 403
        )

        secured.know(secured.tokens["admin"])
        assert code(browser.get("/api/v1/whoami")) == (401, "token_missing"), "revoked with its token"
        secured.know(*secured.tokens.values())
        browser.post("/ui/logout")
        assert code(browser.get("/api/v1/whoami")) == (401, "token_missing")


def test_session_is_accepted_by_another_scheduler_with_the_same_key_alone(secured: Secured) -> None:
    begun = httpx.post(f"{secured.url}/ui/login", json={"token": secured.texts["viewer"]}, timeout=30)
    session = begun.cookies["nimbus"]
    known = {token.id: token for token in secured.tokens.values()}
    same, other = AccessGate(required=True), AccessGate(required=True)
    same.know_store(known, b"k" * 32)
    other.know_store(known, b"o" * 32)

    found = [gate.admit(Presented(session=session), datetime.now(UTC), 0.0) for gate in (same, other)]

    assert begun.status_code == 204
    assert [getattr(one, "name", "refused") for one in found] == ["viewer", "refused"]


def test_login_leads_to_pages_of_this_server_alone(secured: Secured) -> None:
    elsewhere = (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/ui\\..\\evil",
        "/ui\r\nX: y",
        "javascript:x",
        "",
    )
    for after in elsewhere:
        data = {"token": secured.texts["viewer"], "next": after}
        done = httpx.post(f"{secured.url}/ui/login", data=data, timeout=30)
        assert (done.status_code, done.headers["location"]) == (303, "/ui"), after

    page = httpx.get(f"{secured.url}/ui/login", params={"next": '/ui"><script>'}, timeout=30)
    assert "<script>" not in page.text


def test_login_at_a_provider_that_there_is_not_is_not_found(secured: Secured) -> None:
    answers = [secured.ask("GET", f"/ui/login/{step}") for step in ("provider", "callback?code=x&state=y")]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert "/ui/login/provider" not in secured.ask("GET", "/ui/login").text


def test_other_methods_of_open_paths_are_not_found_and_name_nobody(secured: Secured) -> None:
    for method, path in (("GET", "/ui/logout"), ("PUT", "/ui/login")):
        answer = secured.ask(method, path)

        assert 400 <= answer.status_code < 500, (method, path, answer.status_code)
        assert "leader" not in answer.text


def test_stranger_who_asks_for_a_file_that_is_not_there_is_told_so_and_nothing_else(secured: Secured) -> None:
    answers = [secured.ask("GET", f"/ui/static/{place}") for place in ("x/none.js", "none", "a/b/c/d")]

    assert [(answer.status_code, "<html" in answer.text) for answer in answers] == [(404, False)] * 3


def test_login_form_that_is_none_is_refused_kindly(secured: Secured) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"", b"token", b"\xff", b"token=" + b"x" * 200_000, b"a=1&" * 50):
        answer = httpx.post(f"{secured.url}/ui/login", content=body, headers=headers, timeout=30)
        assert (answer.status_code, "not known" in answer.text) == (401, True)


def test_cookie_over_tls_is_for_this_host_and_tls_alone(world: World) -> None:
    gate = AccessGate(required=True, secure=True)
    made = new_token()
    token = Token(id=made.id, name="ada", role=AccessRole.VIEWER, sha256=made.sha256, created_at=T0)
    gate.know_store({token.id: token}, b"k" * 32)
    client = TestClient(create_app(replace(world.services(), gate=gate)), base_url="https://localhost")

    done = client.post("/ui/login", json={"token": made.text})

    assert all(word in done.headers["set-cookie"] for word in ("__Host-nimbus=", "Secure", "HttpOnly"))
    assert client.get("/api/v1/whoami").json()["name"] == "ada"
    plain = {"Cookie": f"nimbus={done.cookies['__Host-nimbus']}"}
    assert (
        TestClient(client.app, base_url="https://localhost").get("/api/v1/whoami", headers=plain).status_code
        == 401
    )


def test_content_of_outputs_needs_more_than_viewer(secured: Secured) -> None:
    path = "/api/v1/runs/r1/tasks/extract/output?path=a"

    answers = {who: secured.ask("GET", path, who) for who in ("viewer", "operator")}
    listed = secured.ask("GET", "/api/v1/runs/r1/outputs", "viewer")

    assert (answers["viewer"].status_code, answers["viewer"].json()["code"]) == (403, "role_too_low")
    assert answers["operator"].json()["code"] == "unknown_run"
    assert listed.json()["code"] == "unknown_run"
