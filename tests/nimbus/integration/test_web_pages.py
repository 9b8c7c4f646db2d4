"""Every page in every state, over real HTTP: links, ids, sizes, policy, and hostile texts."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import islice
from typing import Any
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import httpx
import pytest

from nimbus.api.services import Check
from nimbus.config.shown import Shown
from nimbus.definition.backfill_dates import dates_left, interval_of_date
from nimbus.domain import revisions
from nimbus.domain.access import AccessRole, Principal, PrincipalSource, Token
from nimbus.domain.backfill import BackfillState, Order
from nimbus.domain.catalog import PipelineState
from nimbus.domain.concurrency import Concurrency
from nimbus.domain.ids import AttemptId, PipelineName, TaskName, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.pipeline import CatchUp, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.run import RunState
from nimbus.domain.schedulers import Role
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.tasks import Tasks
from tests.nimbus.definitions import active
from tests.nimbus.integration.web_samples import (
    HOSTILE,
    HOSTILE_NAME,
    backfill,
    catalog,
    commands,
    fan,
    finished,
    hostile,
    layered,
    part_done,
    pipeline,
    releases,
    terms,
)
from tests.nimbus.unit.test_access import a_token

LARGEST_PAGE = 60_000
LARGEST_SCRIPTS = 40_000


class Parsed(HTMLParser):
    """The parts of a page that tests check."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.faults: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "id" in given:
            self.ids[given["id"] or ""] += 1
        self.faults += [f"<{tag} {name}>" for name in given if name == "style" or name.startswith("on")]
        self.links += [given[name] or "" for name in ("href", "src", "action") if name in given]
        if tag == "script":
            self.scripts.append(given.get("src") or "inline")
        if tag in ("style", "iframe", "img", "object", "base"):
            self.faults.append(f"<{tag}>")
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.faults.append("inline script")


@pytest.fixture
def web(api_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api_url, timeout=60) as client:
        yield client


@pytest.fixture
def sample(world: Any) -> Any:
    """A cluster with runs of every kind."""
    finished(world, "sums-old", layered(8), hours_ago=20)
    part_done(world, "sums-live", layered(8), parameters={"day": "2026-03-01"})
    part_done(world, "sums-fan", fan(14))
    hostile(world)
    catalog(world)
    daily = world.cluster.pipeline("daily")
    backfill(world, daily, "fills")
    backfill(world, daily, "held", state=BackfillState.PAUSED, reason=HOSTILE, created_by=HOSTILE)
    backfill(world, daily, "over", state=BackfillState.CANCELLED, reason="no longer wanted")
    terms(world)
    world.failed("sums-failed")
    for number in (1, 2):
        attempt = AttemptId(world.cluster.run("sums-failed").id, TaskName("extract"), number)
        world.logs.append(attempt, 0, b"".join(b"line %d\n" % n for n in range(5_000)))
    world.deciding = False
    return world


@pytest.fixture(autouse=True)
def _hasty_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form waits a second, not five, for a leader that does not decide."""
    monkeypatch.setattr("nimbus.web.actions._WAIT_S", 1)


@pytest.fixture
def audited(sample: Any) -> Any:
    """The same, with waiting and decided commands."""
    commands(sample)
    return sample


@pytest.fixture
def published(sample: Any) -> Any:
    """The same, with releases in storage and on the disk."""
    sample.published = releases(sample)
    return sample


def release_pages(sample: Any) -> list[str]:
    """The pages of the releases of `daily`, whose addresses contain digests."""
    old, new, far = (release.digest for release in sample.published)
    base = "/ui/pipelines/daily/releases"
    return [
        base,
        f"{base}/{new}",
        f"{base}/{old}?against=",
        f"{base}/{old}?against={new}",
        f"{base}/{new}?against={old}&file=load.py",
        f"{base}/{new}?against={old}&file={quote(HOSTILE_NAME)}",
        f"{base}/{new}?against={old}&file=m.bin",
        f"{base}/{new}?against={old}&file=gone.py",
        f"{base}/{far}?against={new}&file=load.py",
        f"{base}/{new}?against={new}",
    ]


PAGES = [
    "/ui/",
    "/ui/pipelines",
    "/ui/pipelines?state=failed",
    "/ui/pipelines?state=quarantined",
    "/ui/pipelines/sums",
    "/ui/pipelines/daily",
    "/ui/pipelines/resting",
    "/ui/pipelines/new",
    "/ui/pipelines/hostile",
    "/ui/pipelines/hostile?view=graph",
    "/ui/pipelines/sums?view=table",
    "/ui/pipelines/sums?view=graph",
    "/ui/pipelines/sums?view=durations",
    "/ui/pipelines/new?view=table",
    "/ui/pipelines/new?view=durations",
    "/ui/pipelines/sums?start_like=sums-old",
    "/ui/backfills",
    "/ui/backfills?pipeline=daily&state=paused",
    "/ui/backfills?pipeline=&state=finished",
    "/ui/backfills/fills",
    "/ui/backfills/held",
    "/ui/backfills/over",
    "/ui/workers",
    "/ui/election",
    "/ui/commands",
    "/ui/commands?by=ann&kind=stop_run&outcome=refused",
    "/ui/commands?by=&kind=&outcome=&pipeline=none-such",
    "/ui/runs",
    "/ui/runs?state=failed",
    "/ui/runs?state=&pipeline=",
    "/ui/runs?pipeline=none-such",
    "/ui/runs/sums-live",
    "/ui/runs/sums-live?state=failed",
    "/ui/runs/sums-live?state=skipped",
    "/ui/runs/sums-live?view=gantt",
    "/ui/runs/sums-live?view=events",
    "/ui/runs/sums-live?view=compare",
    "/ui/runs/sums-live?view=parameters",
    "/ui/runs/sums-fan",
    "/ui/runs/sums-fan?unfold=part-0000",
    "/ui/runs/sums-old?view=parameters",
    "/ui/runs/sums-old?view=compare",
    "/ui/runs/hostile-1",
    "/ui/runs/hostile-1?view=gantt",
    "/ui/runs/hostile-1?view=events",
    "/ui/runs/hostile-1?view=parameters",
    "/ui/runs/hostile-1/tasks/task-0001",
    "/ui/runs/hostile-1/tasks/task-0003",
    "/ui/runs/hostile-1/tasks/task-0001/log",
    "/ui/runs/sums-failed",
    "/ui/runs/sums-failed/tasks/extract",
    "/ui/runs/sums-failed/tasks/extract?attempt=1",
    "/ui/runs/sums-failed/tasks/load",
    "/ui/runs/sums-failed/tasks/extract/log",
    "/ui/runs/sums-failed/tasks/extract/log?attempt=1&offset=0",
    "/ui/runs/sums-failed/tasks/extract/log?q=line+4999",
    "/ui/runs/sums-failed/tasks/load/log",
    "/ui/search?q=sums",
    "/ui/search?q=nothing-of-this",
    "/ui/search",
    "/ui/about",
    "/ui/about?changed=true",
    "/ui/help",
]


def test_pages_are_whole_in_every_state(audited: Any, published: Any, web: httpx.Client) -> None:
    for path in PAGES + release_pages(published):
        answer = web.get(path)
        page = Parsed(answer.text)

        assert answer.status_code == 200, path
        assert page.faults == [], path
        assert [name for name, count in page.ids.items() if count > 1] == [], path
        assert "inline" not in page.scripts
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_links_of_all_pages_lead_somewhere(audited: Any, published: Any, web: httpx.Client) -> None:
    pages = {path: Parsed(web.get(path).text) for path in PAGES + release_pages(published)}
    links = {urljoin(path, link) for path, page in pages.items() for link in page.links}
    links.discard("/ui/runs/nothing-of-this")  # the searched text, as the id of an earlier run
    posts = (
        "/stop",
        "/pause",
        "/resume",
        "/rerun",
        "/approval",
        "/start",
        "/activate",
        "/abdicate",
        "/cancel",
    )

    # One link of each form: those of tasks and log lines have numbers.
    forms = {
        re.sub(r"[0-9a-f]{64}|\d+", "0", urldefrag(link).url): urldefrag(link).url for link in sorted(links)
    }
    in_storage = {release.digest for release in published.published}
    for link in forms.values():
        release = re.search(r"/releases/([0-9a-f]{64})", link)
        if release is not None and release[1] not in in_storage:
            continue
        if not urlsplit(link).netloc and not urlsplit(link).path.endswith(posts):
            assert web.get(link, follow_redirects=True).status_code == 200, link
    for path, page in pages.items():
        assert [link for link in page.links if link[:1] == "#" and link[1:] not in page.ids] == [], path


def test_hostile_texts_are_shown_and_do_nothing(audited: Any, published: Any, web: httpx.Client) -> None:
    for path in [
        *filter(re.compile("hostile").search, PAGES),
        *release_pages(published),
        "/ui/election",
        "/ui/",
        "/ui/runs",
        "/ui/commands",
        f"/ui/search?q={quote(HOSTILE)}",
    ]:
        text = web.get(path).text

        assert "<script>alert" not in text, path
        assert "<img" not in text, path
        assert "{{7*7}}" in text or "view=gantt" in path or "/releases" in path, path


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/ui/nothing", 404, "There is no page"),
        ("/ui/runs/none", 404, "neither live nor in history"),
        ("/ui/runs/%3Cscript%3E", 422, "&lt;script&gt;"),
        ("/ui/runs/..%2f..%2fetc", 404, "There is no page"),
        ("/ui/runs/sums-live/tasks/none", 404, "no task none"),
        ("/ui/runs/sums-failed/tasks/extract?attempt=9", 404, "no attempt 9"),
        ("/ui/runs?state=lost", 422, "state"),
        ("/ui/pipelines?state=lost", 422, "state"),
        ("/ui/pipelines/daily?start_like=sums-old", 404, "is one of sums, not of daily"),
        ("/ui/pipelines/daily?view=all", 422, "view"),
        ("/ui/commands?kind=%3Cb%3E", 422, "kind"),
        ("/ui/commands?cursor=abc", 404, "cursor"),
        ("/ui/pipelines/none", 404, "not in the catalog"),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(
    sample: Any, web: httpx.Client, path: str, status: int, said: str
) -> None:
    answer = web.get(path)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert said in answer.text
    assert Parsed(answer.text).faults == []


def test_page_says_since_when_zookeeper_cannot_be_reached_and_heals(world: Any, web: httpx.Client) -> None:
    world.cluster.set_down(True)
    down = web.get("/ui/runs")
    world.cluster.set_down(False)

    assert (down.status_code, down.headers["retry-after"]) == (503, "2")
    assert "cannot be reached since" in down.text
    assert 'datetime="2026-03-01T06:00:00+00:00"' in down.text
    assert web.get("/ui/runs").status_code == 200


def test_page_without_a_leader_or_without_runs_says_so(world: Any, web: httpx.Client) -> None:
    world.health.leading = None

    text = web.get("/ui/runs").text

    assert "no leader" in text
    assert "No run yet" in text
    assert "answered by <b" in text


def test_page_says_that_history_is_incomplete(sample: Any, web: httpx.Client) -> None:
    sample.history.set_down(True)

    assert "Storage does not answer" in web.get("/ui/runs").text


def test_unchanged_page_is_not_sent_again(sample: Any, web: httpx.Client) -> None:
    first = web.get("/ui/runs/sums-live")
    again = web.get("/ui/runs/sums-live", headers={"If-None-Match": first.headers["etag"]})
    sample.failed("sums-live")
    changed = web.get("/ui/runs/sums-live", headers={"If-None-Match": first.headers["etag"]})

    assert first.headers["etag"].startswith('W/"')
    assert (again.status_code, again.content) == (304, b"")
    assert changed.status_code == 200


@pytest.mark.parametrize("view", ["", "?view=gantt", "?view=events"])
@pytest.mark.parametrize("tasks", ["layered", "fan"])
def test_page_of_a_thousand_tasks_is_small(world: Any, web: httpx.Client, tasks: str, view: str) -> None:
    part_done(world, "large", {"layered": layered, "fan": fan}[tasks](1000))

    with web.stream("GET", f"/ui/runs/large{view}", headers={"Accept-Encoding": "gzip"}) as answer:
        sent = b"".join(answer.iter_raw())

    assert len(sent) < LARGEST_PAGE
    assert b'id="t-' in gzip.decompress(sent)


def test_scripts_are_small_and_kept_for_good(web: httpx.Client) -> None:
    page = Parsed(web.get("/ui/help").text)
    version = page.scripts[0].split("/")[3]
    names = ("app", "keys", "live", "logs", "morph", "page", "theme", "times")
    files = [web.get(f"/ui/static/{version}/{name}.js") for name in names]

    assert sum(len(file.content) for file in files) < LARGEST_SCRIPTS
    assert {file.headers["cache-control"] for file in files} == {"public, max-age=31536000, immutable"}
    assert web.get("/ui/static/other/app.js").headers["cache-control"] == "no-store"


def test_form_stops_a_run_and_the_page_shows_the_decision(sample: Any, web: httpx.Client) -> None:
    sample.deciding = True

    answer = web.post("/ui/runs/sums-live/stop", data={"reason": "not needed"})
    page = web.get(answer.headers["location"])

    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/ui/runs/sums-live")
    assert "Accepted by epoch 7" in page.text


def test_form_reruns_from_a_task_and_leads_to_the_new_run(sample: Any, web: httpx.Client) -> None:
    sample.deciding = True

    answer = web.post("/ui/runs/sums-failed/rerun", data={"scope": "from", "task": "extract"})

    assert answer.status_code == 303
    new = answer.headers["location"].partition("?")[0].rpartition("/")[2]
    assert sample.cluster.run(new) is not None
    assert web.get(answer.headers["location"]).status_code == 200


def test_pending_run_has_a_page(sample: Any, web: httpx.Client) -> None:
    web.post("/api/v1/runs", json={"pipeline": "sums", "run_id": "asked"})

    text = web.get("/ui/runs/asked").text

    assert "Asked for, not started yet" in text


@pytest.mark.parametrize(
    ("path", "form", "status", "said"),
    [
        ("/ui/runs/sums-live/stop", {"reason": ""}, 422, "body.reason"),
        ("/ui/runs/sums-old/stop", {"reason": "x"}, 409, "has succeeded already"),
        ("/ui/runs/none/pause", {}, 404, "neither live nor in history"),
        ("/ui/election/abdicate", {"reason": " "}, 422, "body.reason"),
        ("/ui/pipelines/none/pause", {}, 404, "not in the catalog"),
        ("/ui/pipelines/none/start", {}, 404, "not in the catalog"),
        ("/ui/pipelines/daily/activate", {"digest": "x"}, 422, "body.digest"),
        ("/ui/runs/sums-old/rerun", {"scope": "half"}, 422, "scope"),
        ("/ui/runs/sums-old/stop", {f"field{n}": "x" for n in range(1001)}, 422, "more than 1000 fields"),
    ],
)
def test_refused_form_is_a_page_that_says_why(
    sample: Any, web: httpx.Client, path: str, form: dict[str, str], status: int, said: str
) -> None:
    answer = web.post(path, data=form)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert said in answer.text


def test_form_of_another_site_is_refused(sample: Any, web: httpx.Client) -> None:
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        answer = web.post("/ui/runs/sums-live/stop", data={"reason": "x"}, headers=headers)

        assert answer.status_code == 403
    assert not sample.cluster.commands()


def test_search_leads_to_the_run_of_that_id(sample: Any, web: httpx.Client) -> None:
    answer = web.get("/ui/search?q=sums-live")

    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/runs/sums-live")


def test_search_finds_backfills_by_a_part_of_their_ids(sample: Any, web: httpx.Client) -> None:
    text = web.get("/ui/search?q=fIl").text

    assert 'href="/ui/backfills/fills"' in text
    assert 'href="/ui/backfills/held"' not in text


def test_refusal_is_headed_in_words_and_shows_commands_as_code(sample: Any, web: httpx.Client) -> None:
    sample.deciding = True
    sample.refuse = ("busy", "it ends soon: see `nimbus run show sums-live`, or <wait>")
    refused = web.post("/ui/runs/sums-live/stop", data={"reason": "x"}).text
    headings = {
        path: re.findall("<h1>(.*?)</h1>", web.get(path).text)
        for path in ("/ui/runs/unknown", "/ui/runs?state=bogus")
    }

    assert "<h1>Refused</h1>" in refused
    assert "see <code>nimbus run show sums-live</code>, or &lt;wait&gt;" in refused
    assert headings == {"/ui/runs/unknown": ["Not found"], "/ui/runs?state=bogus": ["Not a valid request"]}


def test_commands_page_names_kinds_in_words(audited: Any, web: httpx.Client) -> None:
    text = web.get("/ui/commands").text

    assert '<option value="stop_run">stop run</option>' in text
    assert ">stop_run<" not in text


def test_release_without_another_one_offers_no_choice_to_compare_with(world: Any, web: httpx.Client) -> None:
    only = world.releases.publish("sums", {"a.py": b""}).digest
    world.cluster.put(replace(world.record, release=only, published=only))
    text = web.get(f"/ui/pipelines/sums/releases/{only}").text

    assert 'name="against"' not in text
    assert "no other release" in text


def test_one_run_is_not_called_runs(world: Any, web: httpx.Client) -> None:
    finished(world, "sums-old", layered(1), hours_ago=2)
    text = web.get("/ui/pipelines/sums").text

    assert "<h2>Last run</h2>" in text
    assert " in 1 run, oldest run first" in text


def test_run_page_says_so_when_the_graph_has_too_many_edges(world: Any, web: httpx.Client) -> None:
    names = [TaskName(f"t{number}") for number in range(102)]
    dense = [
        TaskSpec(name=name, kind=TaskKind.PYTHON, script="t.py", needs=tuple(names[:number]))
        for number, name in enumerate(names)
    ]
    part_done(world, "dense", dense)

    page = web.get("/ui/runs/dense").text

    assert "This graph has 5,151 edges, of which at most 5,000 are drawn." in page
    assert '<svg id="graph"' not in page
    assert "/ui/runs/dense/tasks/t101" in page


def test_form_starts_a_run_with_its_parameters_and_leads_to_it(sample: Any, web: httpx.Client) -> None:
    sample.deciding = True
    page = web.get("/ui/pipelines/daily").text

    form = {"some.day": "2026-03-01", "text.note": "", "json.limit": "7", "json.strict": "false"}
    answer = web.post("/ui/pipelines/daily/start", data={**form, "json.region": '"us"'})
    place = answer.headers["location"].partition("?")[0]
    run = sample.cluster.run(place.rpartition("/")[2])

    assert all(f'name="{field}"' in page for field in (*form, "json.region"))
    assert 'value="as always"' in page
    assert (answer.status_code, web.get(answer.headers["location"]).status_code) == (303, 200)
    assert run.parameters == {"day": "2026-03-01", "note": "", "limit": 7, "strict": False, "region": "us"}


def test_value_that_is_no_json_reaches_the_leader_as_text(sample: Any, web: httpx.Client) -> None:
    web.post("/api/v1/pipelines/daily/pause")
    web.post("/ui/pipelines/daily/start", data={"json.limit": "many", "json.strict": "", "some.day": ""})

    started = [one.command for one in sample.cluster.commands() if one.command.type == "start_run"]
    assert [dict(one.parameters) for one in started] == [{"limit": "many"}]


@pytest.mark.parametrize("verb", ["pause", "activate"])
def test_form_of_a_pipeline_leads_back_to_it_with_the_decision(
    sample: Any, web: httpx.Client, verb: str
) -> None:
    sample.deciding = True

    answer = web.post(f"/ui/pipelines/resting/{verb}", data={"digest": "9" * 64})
    page = web.get(answer.headers["location"])

    assert answer.headers["location"].partition("?")[0] == "/ui/pipelines/resting"
    assert "Accepted by epoch 7" in page.text


def test_form_of_a_pipeline_sends_the_revision_that_its_page_shows(sample: Any, web: httpx.Client) -> None:
    sample.deciding = False
    page = web.get("/ui/pipelines/resting").text
    form = page[page.index("/activate") :]
    revision = form.partition('name="revision" value="')[2].partition('"')[0]

    web.post("/ui/pipelines/resting/activate", data={"revision": revision})
    hostile = web.post(
        "/ui/pipelines/resting/activate", data={"revision": 'x" \u00e4\r\nX-Nimbus-User: root'}
    )

    found = [queued.if_match for queued in sample.cluster.commands()]
    assert found[0] == (revisions.of_pipeline(sample.cluster.pipeline(PipelineName("resting"))),)
    assert hostile.status_code == 303
    assert len(found) == 2


def test_pipeline_page_draws_a_path_for_each_state_of_many_runs(world: Any, web: httpx.Client) -> None:
    for number in range(60):
        finished(world, f"sums-{number:03d}", layered(300), hours_ago=100 - number)

    answer = web.get("/ui/pipelines/sums")
    with web.stream("GET", "/ui/pipelines/sums", headers={"Accept-Encoding": "gzip"}) as packed:
        sent = b"".join(packed.iter_raw())
    grid = re.search(r'<svg id="grid".*?</svg>', answer.text, re.DOTALL)

    assert grid is not None
    assert grid[0].count("<path") == 1
    assert "200 tasks in 50 runs" in grid[0]
    assert "sums-010:" in grid[0]
    assert "sums-009:" not in grid[0]
    assert "102 more tasks are not drawn" in answer.text
    assert len(sent) < LARGEST_PAGE


def test_pages_of_a_thousand_pipelines_are_small(world: Any, web: httpx.Client) -> None:
    for number in range(1000):
        pipeline(world, f"flow-{number:04d}")

    with web.stream("GET", "/ui/pipelines", headers={"Accept-Encoding": "gzip"}) as packed:
        sent = b"".join(packed.iter_raw())
    page = Parsed(gzip.decompress(sent).decode())
    following = next(link for link in page.links if "cursor=" in link)

    assert len(sent) < LARGEST_PAGE
    assert 'id="p-flow-0100"' in web.get(following).text


def test_workers_page_says_what_keeps_each_from_work(world: Any, web: httpx.Client) -> None:
    world.opened(world.new_run("sums-live"), "extract")
    lacking = replace(world.worker, id=WorkerId("w2"), lacks=HOSTILE, hostname=HOSTILE, labels=(HOSTILE,))
    reported = world.clock.now() - timedelta(minutes=1)
    draining = replace(world.worker, id=WorkerId("w3"), draining=True, reported_at=reported)
    cordoned = replace(world.worker, id=WorkerId("w4"))
    settings = ClusterSettings(cordoned={WorkerId("w4"): HOSTILE})
    world.cluster.put(lacking, draining, cordoned, settings)

    text = web.get("/ui/workers").text
    rows = {row[:2]: row for row in text.split('<tr id="w-')[1:]}

    assert "working" in rows["w1"]
    assert "1/1" in rows["w1"]
    assert 'href="/ui/runs/sums-live/tasks/extract?attempt=1">sums-live / extract</a>' in rows["w1"]
    assert "2026-03-01 05:59:00Z" in rows["w3"]
    assert "Its host lacks" in rows["w2"]
    assert "draining" in rows["w3"]
    assert "Cordoned:" in rows["w4"]
    assert "<script>alert" not in text


def test_election_page_says_who_is_next_and_what_it_lacks(world: Any, web: httpx.Client) -> None:
    lacking = web.get("/ui/election").text
    terms(world)
    (two,) = (one for one in world.cluster.schedulers() if one.id == "s2")
    world.cluster.put(replace(two, missing_eta_s=95.0, guard_said="pipeline sums lacks a.py"))
    fetching = web.get("/ui/election").text
    world.cluster.put(replace(two, missing_count=0, missing=(), lacks="sums: absent: no such release"))
    absent = web.get("/ui/election").text
    world.health.queue = world.health.queue[:1]
    alone = web.get("/ui/election").text
    world.health.leading = None
    none = web.get("/ui/election").text

    assert "it lacks 1 file, 9 B" in lacking
    assert "it lacks 1 file, 9 B, about 1 min 35 s at the present speed" in fetching
    assert (
        "which take about 95 s at the present speed. It would adopt 0 open attempts after about" in fetching
    )
    assert "guard: pipeline sums lacks a.py" in fetching
    assert absent.count("sums: absent: no such release") == 3, "next in the queue, prediction, participants"
    assert "sums/a.py" in lacking
    assert "nobody: without the leader nothing starts" in alone
    assert "Hand over" in alone
    assert "Hand over" not in none


def test_election_page_draws_each_term_and_says_what_follows_if_the_leader_dies(
    world: Any, web: httpx.Client
) -> None:
    none = web.get("/ui/election").text
    terms(world, 50)
    world.cluster.put(replace(world.health.me, id="s2"))
    text = web.get("/ui/election").text

    assert "No term is recorded" in none
    assert "s2 would be next, but it is not ready: it lacks 1 file, 9 B" in none
    assert "If the leader died now, s2, which is ready, would lead after about 0.2 s" in text
    assert "the last 20 take-overs took 0.250 s (median)" in text
    assert text.count('<rect class="term"') == text.count('<tr id="t-') == 40
    row = text.partition('<tr id="t-49"')[2].partition("</tr>")[0]
    assert "handed over by name" in row
    assert "at most" not in row, "the end before was written by its own leader"
    assert ">1 min<" in row, "the gap"
    assert "2 runs, 4 open attempts, 1 ended meanwhile, 1 fenced" in row
    row = text.partition('<tr id="t-14"')[2].partition("</tr>")[0]
    assert "at least 59 min" in row
    assert "died, or was cut off" in row
    row = text.partition('<tr id="t-15"')[2].partition("</tr>")[0]
    assert "at most 1 min" in row
    assert '<td class="n">12</td>' in row, "decisions"
    assert " style=" not in text
    later = re.search(r'href="(/ui/election\?cursor=[^"]+)"', text)
    assert later is not None
    assert web.get(later[1]).text.count('<tr id="t-') == 10


def test_form_asks_the_leader_to_abdicate_and_keeps_the_reason(world: Any, web: httpx.Client) -> None:
    world.deciding = False
    asked = {"reason": "host goes down", "to": "s2"}
    answer = web.post("/ui/election/abdicate", data=asked, timeout=60)
    queued = world.cluster.commands()
    world.decide()

    assert answer.headers["location"].startswith("/ui/election?command=")
    assert [(one.command.reason, one.command.to) for one in queued] == [("host goes down", "s2")]
    assert "Accepted by epoch 7" in web.get(answer.headers["location"]).text


def test_cluster_page_names_first_what_needs_attention(sample: Any, web: httpx.Client) -> None:
    pipeline(sample, "late", schedule_position=sample.clock.now() - timedelta(days=3))
    sample.cluster.put(replace(sample.worker, lacks="disk"))

    said = web.get("/ui/").text.partition('id="attention"')[2].partition("</section>")[0]

    assert "No scheduler is ready to succeed s1." in said
    assert "No worker takes new tasks" in said
    assert "The host of worker w1 lacks disk." in said
    assert "Pipeline hostile is quarantined" in said
    assert "The schedule of pipeline late is late: nothing was started for 2026-02-27 05:00Z." in said
    assert 'href="/ui/runs/sums-failed"' in said
    assert "The schedule of pipeline daily" not in said
    assert "Backfill held of pipeline daily is paused" in said


def test_cluster_page_says_that_nothing_needs_attention_and_what_fires_next(
    world: Any, web: httpx.Client
) -> None:
    pipeline(world, "daily")
    noon = PipelineSpec(
        name=PipelineName("noon"), schedule=Schedule(cron="0 12 * * *", timezone="UTC"), tasks=(*layered(1),)
    )
    world.cluster.put(active(noon, schedule_position=world.clock.now()))
    ready = replace(world.health.me, id="s2", role=Role.QUEUED, epoch=None, missing=(), missing_count=0)
    world.cluster.put(ready)

    text = web.get("/ui", follow_redirects=True).text

    assert "Nothing needs attention" in text
    assert "0 of 1 busy</a>, 1 free" in text
    fires = text.partition('id="fires"')[2]
    assert re.findall(r'class="date">([^<]+)<', fires) == [
        "2026-03-01 12:00Z",
        *[f"2026-03-0{day} {hour}Z" for day in range(2, 7) for hour in ("05:00", "12:00")][:9],
    ]


def test_cluster_page_says_that_nobody_leads_or_works(world: Any, web: httpx.Client) -> None:
    world.health.leading = None
    world.cluster._workers.clear()

    text = web.get("/ui/").text

    assert "No scheduler leads: nothing starts until one does." in text
    assert "No worker is registered: no task starts." in text


def test_commands_page_says_who_asked_for_what_from_where_and_what_came_of_it(
    audited: Any, web: httpx.Client
) -> None:
    text = web.get("/ui/commands").text
    pending, _, decided = text.partition('<section id="decided"')
    waiting = pending.partition('<section id="pending"')[2]
    stop = next(row for row in waiting.split("<tr") if "stop run" in row)

    assert "3 waiting" in waiting
    assert waiting.count('<time class="for"') == 3
    assert 'run <a href="/ui/runs/sums-live">' in stop
    assert all(word in stop for word in ("ann", "10.0.0.7", "tk-1", "&lt;script&gt;"))
    assert decided.count('<tr id="c-cmd-') == 100
    assert "run sums-old is being stopped" in decided


def test_commands_page_filters_and_pages_through_history(audited: Any, web: httpx.Client) -> None:
    first = web.get("/ui/commands").text
    older = next(link for link in Parsed(first).links if "cursor=" in link)
    rest = web.get(older).text
    of_ann = web.get("/ui/commands?by=ann&outcome=refused").text
    stops = web.get("/ui/commands?kind=stop_run").text

    assert rest.count('<tr id="c-cmd-') == 20
    assert '<section id="pending"' not in rest
    assert of_ann.count('<tr id="c-cmd-') == 20
    assert "refused" in of_ann
    assert ">accepted<" not in of_ann
    assert stops.partition('<section id="pending"')[2].partition("</section>")[0].count("<tr id=") == 1
    assert stops.partition('<section id="decided"')[2].count('<tr id="c-cmd-') == 60


def test_commands_page_says_that_history_is_incomplete(sample: Any, web: httpx.Client) -> None:
    sample.history.set_down(True)

    assert "Storage does not answer" in web.get("/ui/commands").text


def test_release_page_says_what_would_change_and_lets_go_back_with_a_reason(
    published: Any, web: httpx.Client
) -> None:
    old, new, far = (release.digest for release in published.published)
    base = f"/ui/pipelines/daily/releases/{old}"
    alone, back = web.get(base).text, web.get(f"{base}?against={new}").text
    published.deciding = False
    answer = web.post("/ui/pipelines/daily/activate", data={"digest": old, "reason": "zu langsam"})
    (queued,) = [one for one in published.cluster.commands() if one.command.type == "activate_pipeline"]

    assert "Go back to this release" in alone
    assert "task task-0000: when" in back
    assert "gone.py" in back
    assert "&lt;img src=x" in back
    assert answer.headers["location"].startswith("/ui/pipelines/daily?command=")
    assert (queued.command.digest, queued.asked_by.reason) == (old, "zu langsam")
    assert "Go back" not in web.get(f"/ui/pipelines/daily/releases/{new}").text
    assert (
        "texts and definition cannot be compared here" in web.get(f"/ui/pipelines/daily/releases/{far}").text
    )


def test_release_page_shows_texts_line_by_line_and_spells_out_what_is_not_printed(
    published: Any, web: httpx.Client
) -> None:
    old, new, _ = (release.digest for release in published.published)
    base = f"/ui/pipelines/daily/releases/{new}?against={old}&file="
    text = web.get(f"{base}load.py").text
    added = [line for line in text.split("<span") if line.startswith(' class="added"')]

    assert "+&lt;script&gt;alert(1)" in added[-1]
    assert "\\x1b[31m" in added[-1]
    assert "\\u202e" in added[-1]
    assert "It is no text in UTF-8." in web.get(f"{base}m.bin").text


def test_release_pages_are_small_whatever_is_in_them(world: Any, web: httpx.Client) -> None:
    pipeline(world, "daily")
    noise = random.Random(7).randbytes
    files = {f"folder-{n % 7}/{noise(20).hex()}.py": noise(8) for n in range(600)}
    long = "\n".join(noise(90).hex() for _ in range(1200))
    old = world.releases.publish("daily", {"long.txt": b""})
    new = world.releases.publish("daily", {**files, "long.txt": long.encode()})
    base = f"/ui/pipelines/daily/releases/{new.digest}"
    for path in (base, f"{base}?against={old.digest}", f"{base}?against={old.digest}&file=long.txt"):
        with web.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
            sent = b"".join(packed.iter_raw())

        assert len(sent) < LARGEST_PAGE, path
        assert b"The first 500." in gzip.decompress(sent)


def test_release_pages_say_what_storage_does_not(published: Any, web: httpx.Client) -> None:
    old, _, far = (release.digest for release in published.published)
    published.releases.bucket.unavailable = True

    assert "Storage does not answer" in web.get("/ui/pipelines/daily/releases").text
    assert "storage does not answer" in web.get(f"/ui/pipelines/daily/releases/{old}").text
    assert web.get(f"/ui/pipelines/daily/releases/{far}").status_code == 503
    assert web.get(f"/ui/pipelines/daily/releases/{'0' * 64}").status_code in (404, 503)


def test_about_page_says_versions_checks_settings_and_tokens(world: Any, web: httpx.Client) -> None:
    world.health.checks.append(Check(name="storage", ok=False, detail=HOSTILE))
    world.settings += (
        Shown("storage.secret_access_key", "***", "environment NIMBUS__STORAGE__SECRET_ACCESS_KEY"),
        Shown("worker.env", {"REGION": HOSTILE}, "/etc/nimbus.yaml:7"),
        Shown("api.auth", "auto", "default"),
    )
    token = Token(
        id="a" * 12,
        name="ann",
        role=AccessRole.VIEWER,
        sha256="c" * 64,
        created_at=world.clock.now(),
        created_by=HOSTILE,
    )
    world.cluster.put(ClusterSettings(tokens={token.id: token}))
    text, changed = web.get("/ui/about").text, web.get("/ui/about?changed=true").text

    assert "0.1.0 (1)" in text
    assert "0.1.0 (2)" in text
    assert "1 file missing" in text
    assert "/etc/nimbus.yaml:7" in text
    assert "environment NIMBUS__STORAGE__SECRET_ACCESS_KEY" in text
    assert "api.auth" in text
    assert "api.auth" not in changed
    assert 'id="token-aaaaaaaaaaaa"' in text
    assert "c" * 64 not in text
    assert "<script>alert" not in text
    assert Parsed(text).faults == []


def test_about_page_shows_settings_and_tokens_to_admins_alone(world: Any, web: httpx.Client) -> None:
    secret, token = a_token(AccessRole.VIEWER, "ann")
    world.settings += [Shown("alerts.targets", {"url": "https://hooks.example/T0"}, "default")]
    world.gate.know_store({token.id: token}, b"k" * 32)
    headers = {"Authorization": f"Bearer {secret}"}

    text = web.get("/ui/about", headers=headers).text

    assert "ann</bdi>, viewer" in text
    assert "shown to admins" in text
    assert "hooks.example" not in text
    assert web.get("/api/v1/settings", headers=headers).status_code == 403


def test_pages_offer_nothing_that_a_viewer_is_refused_and_say_the_role(
    published: Any, web: httpx.Client
) -> None:
    secret, token = a_token(AccessRole.VIEWER, "ann")
    published.gate.know_store({token.id: token}, b"k" * 32)
    places = {
        "runs/sums-live": "To pause, stop or repeat a run",
        "election": "To hand the lead over",
        "pipelines/sums": "To start runs, pause or resume",
        "backfills/fills": "To pause, resume or cancel a backfill",
        f"pipelines/daily/releases/{published.published[0].digest}": "To activate a release",
    }
    for place, what in places.items():
        to_viewer = web.get(f"/ui/{place}", headers={"Authorization": f"Bearer {secret}"}).text

        assert re.findall(r'method="post" action="([^"]+)"', to_viewer) == ["/ui/logout"], place
        assert f'id="refused">{what} needs the role' in to_viewer, place
        assert 'id="refused"' not in web.get(f"/ui/{place}").text, place


def test_pipelines_page_draws_durations_and_says_schedule_last_success_and_owner(
    world: Any, web: httpx.Client
) -> None:
    pipeline(world, "daily", owner="data-team")
    finished(world, "d-1", layered(4), hours_ago=30, slower=0.2)
    finished(world, "d-2", layered(4), hours_ago=3)
    world.failed("d-3")

    rows = {row.partition('"')[0]: row for row in web.get("/ui/pipelines").text.split('<tr id="p-')[1:]}
    heights = [int(high) for high in re.findall(r"v-(\d+)", rows["sums"])]

    assert "daily at 06:00</span>, Europe/Berlin" in rows["daily"]
    assert "data-team" in rows["daily"]
    assert "2026-03-01 03:06:15Z" in rows["sums"]
    assert len(set(heights)) == 3
    assert "last runs: 2 succeeded, 1 failed" in rows["sums"]
    assert rows["sums"].count("v2") == 1


def test_pipelines_page_shows_mine_to_who_has_a_token(world: Any, web: httpx.Client) -> None:
    pipeline(world, "of-team", owner="data-team")
    pipeline(world, "of-ann", owner="ann")
    pipeline(world, "of-bob", owner="bob")
    secret, token = a_token(AccessRole.VIEWER, "ann", teams=("data-team",))
    world.gate.know_store({token.id: token}, b"k" * 32)
    text = web.get("/ui/pipelines?mine=true", headers={"Authorization": f"Bearer {secret}"}).text

    assert re.findall(r'<tr id="p-([^"]+)"', text) == ["of-ann", "of-team"]
    assert "mine (ann, data-team)" in text
    assert "mine (" not in web.get("/ui/pipelines").text


def test_pipelines_page_shows_mine_to_who_logged_in_at_the_provider(
    world: Any, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(world, "of-ada", owner="oidc:ada")
    pipeline(world, "of-bob", owner="bob")
    ada = Principal(name="oidc:ada", role=AccessRole.VIEWER, source=PrincipalSource.OIDC)
    monkeypatch.setattr(world.gate, "admit", lambda *_: ada)
    text = web.get("/ui/pipelines?mine=true").text

    assert re.findall(r'<tr id="p-([^"]+)"', text) == ["of-ada"]
    assert "mine (oidc:ada)" in text


def test_run_page_says_what_its_actions_would_do(sample: Any, web: httpx.Client) -> None:
    failed, live = web.get("/ui/runs/sums-failed").text, web.get("/ui/runs/sums-live").text
    done = web.get("/ui/runs/sums-old").text
    task = web.get("/ui/runs/sums-failed/tasks/extract").text

    assert "what failed or did not run, and what follows it: 2 of 2 tasks<" in failed
    assert "what failed or did not run, and what follows it: 0 of 8 tasks<" in done
    assert "all tasks: 8 of 8 tasks<" in done
    assert "all tasks</label>" in live
    assert "2 tasks that compute are stopped; 2 that wait will not start." in live
    assert "A new run of this task and the 1 that follows it;" in task


def test_drawings_of_a_run_say_why_a_task_waits(sample: Any, web: httpx.Client) -> None:
    graph = web.get("/ui/runs/sums-live").text.partition('id="graph"')[2].partition("</svg>")[0]
    gantt = web.get("/ui/runs/sums-live?view=gantt").text.partition('id="gantt"')[2].partition("</svg>")[0]

    assert "<title>task-0007: needs " in graph
    assert re.search(r"<title>task-0003: failed[^<]*: failed after 1 attempt: failed: exit 1<", gantt)


def test_keys_are_listed_without_scripts(web: httpx.Client) -> None:
    shown = web.get("/ui/help").text.partition("<main")[2].partition("</main>")[0]

    assert "go to Election" in shown


def test_cluster_page_draws_the_last_day_of_each_pipeline(world: Any, web: httpx.Client) -> None:
    finished(world, "old", layered(4), hours_ago=40)
    assert "No run." in web.get("/ui/").text.partition('id="day"')[2]

    finished(world, "lately", layered(4), hours_ago=12)
    part_done(world, "live", layered(4))
    world.failed("failed")
    day = web.get("/ui/").text.partition('id="day"')[2].partition("</section>")[0]

    assert 'id="day-sums"' in day
    assert "3 runs in 24 hours" in day
    assert day.count("<path") == 3


def test_cluster_page_names_schedulers_whose_disks_are_full(world: Any, web: httpx.Client) -> None:
    world.cluster.put(replace(world.health.me, disk_free_bytes=300 << 20))

    assert "The disk of scheduler s1 has 300.0 MiB left." in web.get("/ui/").text


def test_pipeline_page_fills_the_form_from_an_earlier_run(world: Any, web: httpx.Client) -> None:
    pipeline(world, "daily")
    given = {"day": HOSTILE, "note": "", "limit": 7, "strict": False, "region": "us", "gone": 1}
    world.cluster.put(world.new_run("d-1", pipeline=PipelineName("daily"), parameters=given))

    text = web.get("/ui/pipelines/daily?start_like=d-1").text

    assert '<details id="start" open>' in text
    assert 'name="some.day" value="&lt;script&gt;' in text
    assert 'name="text.note" value=""' in text
    assert 'name="json.limit" value="7"' in text
    assert '<option value="false" selected>' in text
    assert '<option value="&#34;us&#34;" selected>us' in text
    assert "json.gone" not in text
    assert "<option>d-1</option>" in text


def test_pipeline_page_shows_graph_durations_and_the_grid_as_a_table(sample: Any, web: httpx.Client) -> None:
    graph = web.get("/ui/pipelines/daily?view=graph").text
    table = web.get("/ui/pipelines/sums?view=table").text
    took = web.get("/ui/pipelines/sums?view=durations").text
    row = next(row for row in table.split("<tr") if 'id="row-extract"' in row)

    assert graph.count('<a id="n-task-') == 5
    assert ">python</text>" in graph
    assert "<td>failed</td>" in row
    assert '<th scope="col"><a href="/ui/runs/sums-old">' in table
    assert "1: median 5 min 38 s" in took
    assert 'id="took-task-0000"' in took


@pytest.mark.parametrize("view", ["table", "graph", "durations"])
def test_views_of_a_pipeline_of_a_thousand_tasks_are_small(world: Any, web: httpx.Client, view: str) -> None:
    for number in range(20):
        finished(world, f"sums-{number:03d}", layered(300), hours_ago=100 - number)
    world.cluster.put(active(replace(world.spec, tasks=tuple(layered(1000)))))

    with web.stream("GET", f"/ui/pipelines/sums?view={view}", headers={"Accept-Encoding": "gzip"}) as packed:
        sent = b"".join(packed.iter_raw())

    assert len(sent) < LARGEST_PAGE


def test_pipeline_page_says_what_would_happen(world: Any, web: httpx.Client) -> None:
    concurrency = Concurrency(limit=1)
    world.spec = replace(world.spec, concurrency=concurrency)
    world.cluster.put(active(world.spec))
    world.opened(world.new_run("r1"), "extract")
    late = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.ALL, catchup_window=timedelta(hours=3))
    began = world.clock.now() - timedelta(hours=5)
    tasks = tuple(layered(2))
    world.cluster.put(
        active(PipelineSpec(name=PipelineName("late"), schedule=late, tasks=tasks), schedule_position=began),
        active(
            PipelineSpec(name=PipelineName("rests"), schedule=late, tasks=tasks),
            schedule_position=began,
            state=PipelineState.PAUSED,
        ),
    )
    said = {
        name: web.get(f"/ui/pipelines/{name}").text.partition('id="foreseen"')[2].partition("</section>")[0]
        for name in ("sums", "late", "rests")
    }

    assert "with 2 tasks. Runs under way: 1 of at most 1. It is queued until one ends." in said["sums"]
    assert "0 of 1 slots are free: its tasks wait for one." in said["sums"]
    assert (
        "Catch-up (all) starts 4 runs: 2026-03-01 03:00Z, 2026-03-01 04:00Z, 2026-03-01 05:00Z, "
        "2026-03-01 06:00Z. Missed fire times that start none: 1."
    ) in said["late"]
    assert "The next run is that of 2026-03-01 07:00Z." in said["rests"]


def test_task_page_says_why_each_attempt_was_opened_and_who_holds_it(world: Any, web: httpx.Client) -> None:
    run = world.ended(world.opened(world.new_run("r1"), "extract"), "extract", Outcome.LOST)
    run = world.ended(world.opened(run, "extract", minutes=3), "extract", Outcome.FAILED, minutes=4)
    world.opened(run, "extract", minutes=5)

    def page(query: str = "") -> tuple[str, str]:
        text = web.get(f"/ui/runs/r1/tasks/extract{query}").text
        return text, text.partition('id="attempt"')[2].partition("</dl>")[0]

    text, third = page()
    _, first = page("?attempt=1")

    assert "attempt 1 ended as lost: uses up no retry" in text
    assert "attempt 2 ended as failed (missing input): retry 1 of 1" in text
    assert "process of w1, pid 99" in third
    assert "<code>000003</code>" in third
    assert "<dd>yes" in third
    assert "lost, by runner" in first
    assert "epoch 7" in first


def test_backfill_page_says_what_became_of_each_date_and_what_is_ahead(world: Any, web: httpx.Client) -> None:
    backfill(world, pipeline(world, "daily"), "fills")
    page = web.get("/ui/backfills/fills").text
    rows = page.partition('<tbody id="rows">')[2].split("<tr ")[1:]

    assert [row.partition('class="state ')[2].partition('"')[0] for row in rows] == (
        ["succeeded", "failed", "running", "skipped"] + ["waiting"] * 6
    )
    assert 'href="/ui/runs/fills-20260220t050000z"' in rows[0]
    assert "2026-02-20 05:00Z" in rows[0]
    assert 'href="/ui/runs/by-schedule"' in rows[3]
    assert "skipped: its last run succeeded before" in rows[3]
    assert "gets a run" in rows[4]
    assert 'aria-label="1 succeeded, 1 failed, 1 running, 1 skipped, 6 waiting;' in page
    assert "max_parallel, 2" not in page
    assert "date 4 of 10, 1 under way" in page


def test_backfill_page_names_the_run_of_the_schedule_because_of_which_a_date_gets_none(
    world: Any, web: httpx.Client
) -> None:
    found = backfill(world, pipeline(world, "daily"), "fills")
    dates = list(islice(dates_left(found), 2))
    world.cluster.put(*(world.new_run(found.scheduled_run_id(date), pipeline="daily") for date in dates))
    world.cluster.put(replace(found, position=dates[0]))

    rows = web.get("/ui/backfills/fills").text.partition('<tbody id="rows">')[2].split("<tr ")
    past, ahead = rows[5:7]

    assert 'href="/ui/runs/daily-20260224t050000z"' in past
    assert "got no run: that of the schedule has not ended" in past
    assert 'href="/ui/runs/daily-20260225t050000z"' in ahead
    assert "gets no run: that of the schedule has not ended" in ahead


def test_backfill_page_draws_dates_of_hours_and_months_in_rows_of_days_and_years(
    world: Any, web: httpx.Client
) -> None:
    for name, cron in (("hourly", "0 * * * *"), ("monthly", "0 0 1 * *")):
        schedule = Schedule(cron=cron, timezone="UTC")
        of = active(PipelineSpec(name=PipelineName(name), schedule=schedule, tasks=tuple(layered(2))))
        world.cluster.put(of)
        found = backfill(world, of, f"{name}-fill")
        first = world.clock.now() - timedelta(days=800 if name == "monthly" else 10)
        request = replace(found.request, first=first, order=Order.NEWEST)
        world.cluster.put(replace(found, request=request, position=None))

    hourly, monthly = (web.get(f"/ui/backfills/{name}-fill").text for name in ("hourly", "monthly"))
    later = re.search(r'href="(/ui/backfills/hourly-fill\?after=[^"]+)"', hourly)

    assert hourly.count('<tr id="d-') == 200
    assert hourly.index('id="d-2026-03-01T06:00') < hourly.index('id="d-2026-03-01T05:00')
    assert ">2026-02-28</text>" in hourly
    assert ">2025</text>" in monthly
    assert later is not None
    assert web.get(later[1]).text.count('<tr id="d-') == 41
    assert web.get("/ui/backfills/hourly-fill?after=x").status_code == 422


def test_backfill_page_of_two_hundred_dates_is_small(world: Any, web: httpx.Client) -> None:
    schedule = Schedule(cron="*/5 * * * *", timezone="Europe/Berlin")
    of = active(PipelineSpec(name=PipelineName("p" * 64), schedule=schedule, tasks=tuple(layered(2))))
    world.cluster.put(of)
    found = backfill(world, of, "f" * 60)
    now, noise = world.clock.now(), random.Random(7).randbytes
    index = IntervalIndex(begins=now - timedelta(days=99))
    for date in islice(dates_left(replace(found, position=None)), 200):
        run = world.new_run(
            noise(30).hex(), pipeline=of.name, data_interval=interval_of_date(found, date), started_at=now
        )
        index = index.with_run(replace(run, state=RunState.SUCCEEDED, finished_at=now))
    world.cluster.put_intervals(of.name, index)
    with web.stream("GET", f"/ui/backfills/{found.id}", headers={"Accept-Encoding": "gzip"}) as packed:
        sent = b"".join(packed.iter_raw())

    page = gzip.decompress(sent)
    assert page.count(b'<tr id="d-') == page.count(b'" data-row>') == 200
    assert len(sent) < LARGEST_PAGE


@pytest.mark.parametrize("every", [None, timedelta(hours=6)])
def test_backfill_page_shows_no_date_outside_of_its_range(
    world: Any, web: httpx.Client, every: timedelta | None
) -> None:
    found = backfill(world, pipeline(world, "daily"), "fills")
    schedule = found.schedule if every is None else None
    for order in Order:
        request = replace(found.request, order=order, every=every)
        world.cluster.put(replace(found, schedule=schedule, request=request, position=None))
        for after in ("0001-01-01T00:00:00Z", "1999-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"):
            page = web.get(f"/ui/backfills/fills?after={quote(after)}")

            assert page.status_code == 200, (order, after)
            assert "The range has no date on this page." in page.text, (order, after)


@pytest.mark.parametrize(
    ("name", "verb", "says"),
    [
        ("fills", "pause", "It starts no more runs until it is resumed. Runs that are live go on: 1."),
        ("held", "resume", "It goes on with 2026-02-24 05:00Z, and starts at most 1 run at once."),
        ("held", "cancel", "Queued runs are stopped: 0. Runs under way go on: 1."),
    ],
)
def test_form_steers_a_backfill_after_its_page_has_said_what_that_does(
    sample: Any, web: httpx.Client, name: str, verb: str, says: str
) -> None:
    page = web.get(f"/ui/backfills/{name}").text
    form = page.partition(f'action="/ui/backfills/{name}/{verb}"')[2].partition("</form>")[0]
    revision = form.partition('name="revision" value="')[2].partition('"')[0]
    asked = {"revision": revision, "reason": "the disk is full"}

    answer = web.post(f"/ui/backfills/{name}/{verb}", data=asked, timeout=60)
    (queued,) = sample.cluster.commands()
    sample.decide()

    assert says in form
    assert (queued.command.backfill, queued.command.reason) == (name, "the disk is full")
    assert queued.if_match == (revision,)
    assert answer.headers["location"].startswith(f"/ui/backfills/{name}?command=")
    assert "Accepted by epoch 7" in web.get(answer.headers["location"]).text


def test_backfills_are_listed_by_state_and_on_the_page_of_their_pipeline(
    sample: Any, web: httpx.Client
) -> None:
    def rows(path: str) -> list[str]:
        return re.findall(r'<tr id="b-([^"]+)"', web.get(path).text)

    assert sorted(rows("/ui/backfills")) == ["fills", "held", "over"]
    assert rows("/ui/backfills?state=paused") == ["held"]
    assert rows("/ui/backfills?pipeline=resting") == []
    assert sorted(rows("/ui/pipelines/daily")) == ["fills", "held", "over"]
    assert 'action="/ui/backfills' not in web.get("/ui/backfills/over").text


def test_pipeline_pages_say_why_it_is_quarantined_and_what_a_start_would_do(
    sample: Any, web: httpx.Client
) -> None:
    row = web.get("/ui/pipelines").text.partition('id="p-hostile"')[2].partition("</tr>")[0]
    form = web.get("/ui/pipelines/daily").text.partition('<details id="start"')[2].partition("</details>")[0]

    assert row.count("&lt;script&gt;alert(1)") == 3, "in the title, below the name, and the owner"
    assert "What would happen: One run of release" in form
    assert "of 1 slots are free" in form


def test_cluster_page_counts_runs_that_failed_since_yesterday_by_their_end(
    world: Any, web: httpx.Client
) -> None:
    long_ago = world.clock.now() - timedelta(days=3)
    world.cluster.put(replace(world.failed("slow"), created_at=long_ago))
    world.cluster.put(replace(world.failed("over"), created_at=long_ago, finished_at=long_ago))

    said = web.get("/ui/").text

    assert "Run slow of sums failed." in said
    assert "Run over of sums failed." not in said


def test_approval_can_be_given_once_the_tasks_before_it_are_done(world: Any, web: httpx.Client) -> None:
    first = TaskSpec(name=TaskName("check"), kind=TaskKind.PYTHON, script="a.py")
    ask = TaskSpec(
        name=TaskName("release"), kind=TaskKind.APPROVAL, script="", args=("Release?",), needs=(first.name,)
    )
    tasks = Tasks((TaskRun(spec=first), TaskRun(spec=ask)))
    before = world.new_run("sums-live", tasks=tasks, state=RunState.RUNNING)
    world.cluster.put(before)
    early = web.get("/ui/runs/sums-live/tasks/release").text
    done = TaskRun(spec=first, state=TaskState.SUCCEEDED)
    world.cluster.put(replace(before, tasks=Tasks((done, TaskRun(spec=ask)))))

    assert 'id="approval"' not in early
    assert 'id="approval"' in web.get("/ui/runs/sums-live/tasks/release").text


def test_log_that_its_worker_could_not_store_is_said_to_be_so(world: Any, web: httpx.Client) -> None:
    world.succeeded("r1")
    log = "/ui/runs/r1/tasks/extract/log"
    assert "It is empty." in web.get(log).text

    world.cluster.put(replace(world.worker, unstored_logs="2 not stored: no credentials"))

    said = "worker w1 has logs on its disk that storage does not accept: 2 not stored: no credentials"
    assert said in web.get(log).text
    assert "Logs of worker w1: 2 not stored: no credentials" in web.get("/ui/").text
    assert "Logs: <bdi>2 not stored: no credentials" in web.get("/ui/workers").text
