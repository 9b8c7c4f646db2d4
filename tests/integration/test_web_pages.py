"""Every page in every state, over real HTTP: links, ids, sizes, policy, and what hostile texts do."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import httpx
import pytest

from nimbus.domain.ids import AttemptId, TaskName, WorkerId
from nimbus.domain.pipeline import TaskKind, TaskSpec
from nimbus.domain.schedulers import Role
from nimbus.domain.settings import ClusterSettings
from tests.web_samples import HOSTILE, catalog, fan, finished, hostile, layered, part_done, pipeline

LARGEST_PAGE = 60_000
LARGEST_SCRIPTS = 40_000


class Parsed(HTMLParser):
    """What a test asks of a page."""

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
    world.failed("sums-failed")
    for number in (1, 2):
        attempt = AttemptId(world.cluster.run("sums-failed").id, TaskName("extract"), number)
        world.logs.append(attempt, 0, b"".join(b"line %d\n" % n for n in range(5_000)))
    world.deciding = False
    return world


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
    "/ui/workers",
    "/ui/election",
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
    "/ui/help",
]


def test_pages_are_whole_in_every_state(sample: Any, web: httpx.Client) -> None:
    for path in PAGES:
        answer = web.get(path)
        page = Parsed(answer.text)

        assert answer.status_code == 200, path
        assert page.faults == [], path
        assert [name for name, count in page.ids.items() if count > 1] == [], path
        assert "inline" not in page.scripts
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_links_of_all_pages_lead_somewhere(sample: Any, web: httpx.Client) -> None:
    pages = {path: Parsed(web.get(path).text) for path in PAGES}
    links = {urljoin(path, link) for path, page in pages.items() for link in page.links}
    links.discard("/ui/runs/nothing-of-this")  # what was searched for, as the id of an earlier run
    posts = ("/stop", "/pause", "/resume", "/rerun", "/approval", "/start", "/activate", "/abdicate")

    # One of each form: tasks and lines of logs have numbers.
    forms = {re.sub(r"\d+", "0", urldefrag(link).url): urldefrag(link).url for link in sorted(links)}
    for link in forms.values():
        if not urlsplit(link).netloc and not urlsplit(link).path.endswith(posts):
            assert web.get(link, follow_redirects=True).status_code == 200, link
    for path, page in pages.items():
        assert [link for link in page.links if link[:1] == "#" and link[1:] not in page.ids] == [], path


def test_hostile_texts_are_shown_and_do_nothing(sample: Any, web: httpx.Client) -> None:
    for path in [
        *filter(re.compile("hostile").search, PAGES),
        "/ui/",
        "/ui/runs",
        f"/ui/search?q={quote(HOSTILE)}",
    ]:
        text = web.get(path).text

        assert "<script>alert" not in text, path
        assert "<img" not in text, path
        assert "{{7*7}}" in text or "view=gantt" in path, path


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
    draining = replace(world.worker, id=WorkerId("w3"), draining=True)
    cordoned = replace(world.worker, id=WorkerId("w4"))
    settings = ClusterSettings(cordoned={WorkerId("w4"): HOSTILE})
    world.cluster.put(lacking, draining, cordoned, settings)

    text = web.get("/ui/workers").text
    rows = {row[:2]: row for row in text.split('<tr id="w-')[1:]}

    assert "working" in rows["w1"]
    assert "1/1" in rows["w1"]
    assert "Its host lacks" in rows["w2"]
    assert "draining" in rows["w3"]
    assert "Cordoned:" in rows["w4"]
    assert "<script>alert" not in text


def test_election_page_says_who_is_next_and_what_it_lacks(world: Any, web: httpx.Client) -> None:
    lacking = web.get("/ui/election").text
    world.health.queue = world.health.queue[:1]
    alone = web.get("/ui/election").text
    world.health.leading = None
    none = web.get("/ui/election").text

    assert "it lacks 1 file, 9 B" in lacking
    assert "sums/a.py" in lacking
    assert "nobody: without the leader nothing starts" in alone
    assert "Hand over" in alone
    assert "Hand over" not in none


def test_form_asks_the_leader_to_abdicate_and_keeps_the_reason(world: Any, web: httpx.Client) -> None:
    world.deciding = False
    answer = web.post("/ui/election/abdicate", data={"reason": "host goes down"}, timeout=60)
    queued = world.cluster.commands()
    world.decide()

    assert answer.headers["location"].startswith("/ui/election?command=")
    assert [one.command.reason for one in queued] == ["host goes down"]
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
    assert "pipeline daily" not in said


def test_cluster_page_says_that_nothing_needs_attention_and_what_fires_next(
    world: Any, web: httpx.Client
) -> None:
    pipeline(world, "daily")
    ready = replace(world.health.me, id="s2", role=Role.QUEUED, epoch=None, missing=(), missing_count=0)
    world.cluster.put(ready)

    text = web.get("/ui", follow_redirects=True).text

    assert "Nothing needs attention" in text
    assert "0 of 1 busy" in text
    assert "2026-03-02 05:00:00Z" in text.partition('id="fires"')[2]


def test_cluster_page_says_that_nobody_leads_or_works(world: Any, web: httpx.Client) -> None:
    world.health.leading = None
    world.cluster._workers.clear()

    text = web.get("/ui/").text

    assert "No scheduler leads: nothing starts until one does." in text
    assert "No worker is registered: no task starts." in text
