"""Every page in every state, over real HTTP: links, ids, sizes, policy, and hostile texts."""

from __future__ import annotations

import gzip
import random
import re
from base64 import b64encode
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import httpx
import pytest

from nimbus.domain.attempts.cost import Cost
from nimbus.domain.attempts.slots import Claim, Slots
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.pipeline import TaskKind, TaskSpec
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from tests.nimbus.integration.conftest import T0
from tests.nimbus.integration.web_pages import LARGEST_PAGE, Parsed
from tests.nimbus.integration.web_samples import (
    HOSTILE,
    HOSTILE_NAME,
    fan,
    finished,
    layered,
    part_done,
    pipeline,
)
from tests.nimbus.unit.test_access import a_token

LARGEST_SCRIPTS = 40_000


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
    "/ui/runs?tag=nightly&owner=-&parameter=&logical_from=2026-03-01",
    "/ui/selection?action=stop&name=sums-live&name=sums-fan",
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
    "/ui/datasets",
    "/ui/datasets/days",
    "/ui/datasets/days?partition=",
    "/ui/datasets/regions?partition=eu",
    "/ui/datasets/regions?partition=none-such",
    "/ui/datasets/report",
    "/ui/lineage",
    "/ui/runs/report-1",
    "/ui/runs/report-1?view=data",
    "/ui/runs/sums-old?view=data",
    "/ui/pipelines/shop",
    "/ui/search?q=days",
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
        "/selection",
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
    world.cluster.available = False
    down, unknown = web.get("/ui/runs"), web.get("/ui/nothing")
    world.cluster.available = True

    assert (down.status_code, down.headers["retry-after"]) == (503, "2")
    assert (unknown.status_code, "There is no page" in unknown.text) == (404, True)
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
    sample.releases.bucket.unavailable = True

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
    names = ("app", "graph", "keys", "live", "logs", "morph", "page", "theme", "times")
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
    assert sample.reader.run(new) is not None
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
    assert not sample.reader.commands()


def test_search_leads_to_the_run_of_that_id(sample: Any, web: httpx.Client) -> None:
    answer = web.get("/ui/search?q=sums-live")

    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/runs/sums-live")


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


def test_one_run_is_not_called_runs(world: Any, web: httpx.Client) -> None:
    finished(world, "sums-old", layered(1), hours_ago=2)
    text = web.get("/ui/pipelines/sums").text

    assert "<h2>Last run</h2>" in text
    assert " in 1 run, oldest first" in text


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
    run = sample.reader.run(place.rpartition("/")[2])

    assert all(f'name="{field}"' in page for field in (*form, "json.region"))
    assert 'value="as always"' in page
    assert (answer.status_code, web.get(answer.headers["location"]).status_code) == (303, 200)
    assert run.parameters == {"day": "2026-03-01", "note": "", "limit": 7, "strict": False, "region": "us"}


def test_value_that_is_no_json_reaches_the_leader_as_text(sample: Any, web: httpx.Client) -> None:
    web.post("/api/v1/pipelines/daily/pause")
    web.post("/ui/pipelines/daily/start", data={"json.limit": "many", "json.strict": "", "some.day": ""})

    started = [one.command for one in sample.reader.commands() if one.command.type == "start_run"]
    assert [dict(one.parameters) for one in started] == [{"limit": "many"}]


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


def test_tasks_are_found_by_a_part_of_their_names_without_scripts(world: Any, web: httpx.Client) -> None:
    part_done(world, "wide", fan(30))
    found = web.get("/ui/runs/wide?find=PART-0002&state=succeeded").text

    assert re.findall(r'<tr id="t-([^"]+)"', found) == ["part-0002"]
    assert re.search(r'<a id="n-part-0000" \S+ class="\w+ critical hit"', found)
    assert "?find=PART-0002&amp;state=failed" in found or "?state=failed&amp;find=PART-0002" in found
    assert "No task has nothing in its name" in web.get("/ui/runs/wide?find=nothing").text


def test_keys_are_listed_without_scripts(web: httpx.Client) -> None:
    shown = web.get("/ui/help").text.partition("<main")[2].partition("</main>")[0]

    assert "go to Election" in shown


def test_task_page_says_why_each_attempt_was_opened_and_who_holds_it(world: Any, web: httpx.Client) -> None:
    run = world.ended(world.opened(world.new_run("r1"), "extract"), "extract", Outcome.LOST)
    run = world.ended(world.opened(run, "extract", minutes=3), "extract", Outcome.FAILED, minutes=4)
    world.opened(run, "extract", minutes=5)

    def page(query: str = "") -> tuple[str, str]:
        text = web.get(f"/ui/runs/r1/tasks/extract{query}").text
        return text, text.partition('id="attempt"')[2].partition("</details>")[0]

    text, third = page()
    _, first = page("?attempt=1")

    assert "attempt 1 ended as lost: uses up no retry" in text
    assert "attempt 2 ended as failed (missing input): retry 1 of 1" in text
    assert "process of w1, pid 99" in third
    assert "<code>000003</code>" in third
    assert "its node is there" in third
    assert "lost, by runner" in first
    assert "epoch 7" in first


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


def test_log_page_is_small_whatever_its_text_and_scripts_get_more_lines_at_once(
    world: Any, web: httpx.Client
) -> None:
    world.failed("sums-failed")
    attempt, noise = AttemptId(RunId("sums-failed"), TaskName("extract"), 1), random.Random(7).randbytes
    world.logs.append(attempt, 0, b"".join(b64encode(noise(60)) + b"\n" for _ in range(8_000)))
    page = "/ui/runs/sums-failed/tasks/extract/log?attempt=1"

    sent = {}
    for path in (page, f"{page}&offset=0", f"{page}&line=5000", page.removesuffix("/log?attempt=1")):
        with web.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
            sent[path] = len(b"".join(packed.iter_raw()))
    part = web.get(f"{page}&more=true&offset=0").text

    assert max(sent.values()) < LARGEST_PAGE, sent
    assert part.count('<a id="L') == 2_000
    assert "<h1" not in part


def test_log_that_its_worker_could_not_store_is_said_to_be_so(world: Any, web: httpx.Client) -> None:
    world.succeeded("r1")
    log = "/ui/runs/r1/tasks/extract/log"
    assert "It is empty." in web.get(log).text

    world.cluster.put(replace(world.worker, unstored_logs="2 not stored: no credentials"))

    said = "worker w1 has logs on its disk that storage does not accept: 2 not stored: no credentials"
    assert said in web.get(log).text
    assert "Logs of worker w1: 2 not stored: no credentials" in web.get("/ui/").text
    assert "Logs: <bdi>2 not stored: no credentials" in web.get("/ui/workers").text


@pytest.mark.parametrize(
    ("ui", "links"),
    [("http://driver-1.of_us:4040", True), ("http://a@b/", False), ("javascript:alert(1)", False)],
)
def test_task_page_links_to_the_pages_of_the_spark_that_runs(
    world: Any, web: httpx.Client, ui: str, links: bool
) -> None:
    attempt = AttemptId(RunId("r1"), TaskName("extract"), 1)
    world.opened(world.new_run("r1"), "extract")
    claim = Claim(attempt=str(attempt), worker=world.worker.id, claimed_at=T0)
    world.cluster.set_slots(attempt, Slots(claim=claim, progress={"ui": ui}))

    text = web.get("/ui/runs/r1/tasks/extract").text

    assert ui in text
    assert (f'<a href="{ui}" rel="noreferrer">' in text) == links


def test_task_page_says_what_an_attempt_used(world: Any, web: httpx.Client) -> None:
    run = world.succeeded("r1")
    task = run.tasks[TaskName("extract")]
    used = replace(task.attempts[0], cost=Cost(cpu_ms=34_000, peak_memory_bytes=1 << 30))
    world.cluster.put(run.with_tasks(run.tasks.replaced((replace(task, attempts=(used,)),))))

    assert "<dt>Used</dt><dd>1.0 GiB peak, 34 s CPU</dd>" in web.get("/ui/runs/r1/tasks/extract").text
    assert "<dt>Used</dt>" not in web.get("/ui/runs/r1/tasks/load").text


def test_the_tasks_of_a_wide_run_are_listed_page_by_page(world: Any, web: httpx.Client) -> None:
    part_done(world, "wide", fan(1100), share=0.99)
    seen: list[str] = []
    path, pages = "/ui/runs/wide?view=gantt", 0
    while path:
        text = web.get(path).text
        seen += re.findall(r'<tr id="t-([^"]+)"', text)
        following = re.search(r'id="task-pages">.*?<a href="([^"]+)">Next', text)
        path, pages = following and f"/ui/runs/wide{unescape(following[1])}", pages + 1

    assert pages == 3
    assert seen == ["split", *(f"part-{number:04}" for number in range(1100)), "join"]
    assert "and 1000 more" in web.get("/ui/runs/wide/tasks/join").text


def test_choice_of_a_zone_is_kept_for_later_pages_but_not_by_a_page_that_fetches_itself(
    sample: Any, web: httpx.Client
) -> None:
    asked = web.get("/ui/runs/sums-old?view=gantt&times=Asia/Tokyo")
    again = web.get("/ui/runs?times=UTC", headers={"Sec-Fetch-Mode": "cors"})

    assert asked.headers["set-cookie"].startswith("nimbus_times=Asia/Tokyo; Path=/ui;")
    assert '<input type="hidden" name="view" value="gantt">' in asked.text
    assert "set-cookie" not in again.headers
    assert " JST</time>" in web.get("/ui/runs").text
    assert " JST</time>" not in again.text


def test_list_of_runs_has_the_zones_of_many_pipelines_without_a_read_of_each(
    world: Any, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        of = pipeline(world, f"of-{number}", [])
        world.cluster.put(world.new_run(f"r{number}", pipeline=of.name))
    read: list[str] = []
    one = world.reader.pipeline
    monkeypatch.setattr(world.reader, "pipeline", lambda name: read.append(name) or one(name))

    listed = web.get("/ui/runs").text

    assert listed.count(" CEST</time>") + listed.count(" CET</time>") >= 3
    assert read == []


def test_page_of_a_task_reads_its_run_once_though_it_shows_output_log_and_the_last_runs(
    world: Any, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ended(world.opened(world.new_run("r1"), "extract"), "extract", Outcome.SUCCEEDED)
    world.logs.append(AttemptId(RunId("r1"), TaskName("extract"), 1), 0, b"done\n")
    web.get("/ui/runs/r1/tasks/extract")  # reads the last runs, which are kept
    read: list[str] = []
    one, some = world.reader.run, world.reader.runs
    monkeypatch.setattr(world.reader, "run", lambda name: read.append(name) or one(name))
    monkeypatch.setattr(world.reader, "runs", lambda names: read.extend(names := list(names)) or some(names))

    shown = web.get("/ui/runs/r1/tasks/extract").text

    assert "done" in shown
    assert read == ["r1"]
