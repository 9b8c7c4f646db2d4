"""Pages of pipelines, their releases and their backfills, over real HTTP."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from nimbus.adapters.store.cluster import TreeClusterReader
from nimbus.api.routes.releases import DefinitionChangeModel
from nimbus.definition.backfill_dates import dates_left, interval_of_date
from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import AccessRole, Principal, PrincipalSource
from nimbus.domain.ids import PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.backfill import BackfillState, Order
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import CatchUp, Concurrency, PipelineSpec, Schedule
from nimbus.domain.runs.run import RunCause, RunState
from nimbus.web.release import together
from nimbus.web.run import page as run_page
from tests.nimbus.definitions import active
from tests.nimbus.integration.web_pages import LARGEST_PAGE, Parsed
from tests.nimbus.integration.web_samples import (
    HOSTILE,
    backfill,
    dated,
    fan,
    finished,
    layered,
    part_done,
    pipeline,
)
from tests.nimbus.unit.test_access import a_token


def test_search_finds_backfills_by_a_part_of_their_ids(sample: Any, web: httpx.Client) -> None:
    text = web.get("/ui/search?q=fIl").text

    assert 'href="/ui/backfills/fills"' in text
    assert 'href="/ui/backfills/held"' not in text


def test_release_without_another_one_offers_no_choice_to_compare_with(world: Any, web: httpx.Client) -> None:
    only = world.releases.publish("sums", {"a.py": b""}).digest
    world.cluster.put(replace(world.record, release=only, published=only))
    text = web.get(f"/ui/pipelines/sums/releases/{only}").text

    assert 'name="against"' not in text
    assert "no other release" in text


def test_release_page_shows_what_changed_since_the_release_before(published: Any, web: httpx.Client) -> None:
    old, new, far = (release.digest for release in published.published)
    base = "/ui/pipelines/daily/releases"
    listed = re.findall(r"releases/([0-9a-f]{64})", web.get(base).text)
    of = dict(zip(dict.fromkeys(listed), [*dict.fromkeys(listed)][1:], strict=False))
    page = web.get(f"{base}/{new}").text

    assert {old, new, far} == set(listed)
    for digest, before in of.items():
        assert f'from <a href="{base}/{before}' in web.get(f"{base}/{digest}").text
    assert "Definition: from" not in web.get(f"{base}/{new}?against=").text
    assert f'href="{base}/{new}?against="' in page


def test_success_of_a_backfill_does_not_hide_that_the_last_run_failed(world: Any, web: httpx.Client) -> None:
    failed = world.failed("night")
    later = failed.created_at + timedelta(minutes=1)
    world.history.store(
        replace(failed, id=RunId("fill"), state=RunState.SUCCEEDED, cause=RunCause.BACKFILL, created_at=later)
    )

    assert "last run failed" in web.get("/ui/pipelines/sums").text


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

    found = [queued.if_match for queued in sample.reader.commands()]
    assert found[0] == (revisions.of_pipeline(sample.reader.pipeline(PipelineName("resting"))),)
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
    assert set(re.findall(r'<path class="([^"]+)"', grid[0])) == {"scale", "bar succeeded", "succeeded"}
    assert grid[0].count("<path") == 4
    assert "200 tasks in 50 runs" in grid[0]
    assert "Run sums-010, " in grid[0]
    assert "Run sums-009, " not in grid[0]
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


def test_release_page_says_what_would_change_and_lets_go_back_with_a_reason(
    published: Any, web: httpx.Client
) -> None:
    old, new, far = (release.digest for release in published.published)
    base = f"/ui/pipelines/daily/releases/{old}"
    alone, back = web.get(base).text, web.get(f"{base}?against={new}").text
    published.deciding = False
    answer = web.post("/ui/pipelines/daily/activate", data={"digest": old, "reason": "zu langsam"})
    (queued,) = [one for one in published.reader.commands() if one.command.type == "activate_pipeline"]

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


def test_one_change_of_all_tasks_is_shown_once() -> None:
    def change(task: str, key: str, before: int, after: int) -> DefinitionChangeModel:
        return DefinitionChangeModel(
            key=f"tasks.{task}.{key}",
            about=f"task {task}: {key}",
            change="changed",
            before=before,
            after=after,
        )

    changes = [change(f"t{number}", "timeout_s", 60, 90) for number in range(8)]
    other = change("t3", "retries.limit", 1, 2)
    added = DefinitionChangeModel(key="tasks.new", about="task new", change="added", before=None, after={})

    shown = together([*changes[:4], other, *changes[4:], added])

    assert [one.about for one in shown] == [
        "8 tasks, t0, t1 and others: timeout_s",
        "task t3: retries.limit",
        "task new",
    ]
    assert shown[0].keys == [one.key for one in changes]
    assert together(changes[:2])[0].about == "2 tasks, t0 and t1: timeout_s"


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
    assert "2026-03-01 03:06Z" in rows["sums"]
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


def test_cluster_page_draws_the_last_day_of_each_pipeline(world: Any, web: httpx.Client) -> None:
    finished(world, "old", layered(4), hours_ago=40)
    assert "No run." in web.get("/ui/").text.partition('id="day"')[2]

    finished(world, "lately", layered(4), hours_ago=12)
    part_done(world, "live", layered(4))
    world.failed("failed")
    day = web.get("/ui/").text.partition('id="day"')[2].partition("</section>")[0]

    assert 'id="day-sums"' in day
    assert 'aria-label="3 runs, 1 failed"' in day
    assert day.partition('id="day-sums"')[2].count("<rect") == 3


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
    assert '<br><a href="/ui/runs/sums-old">' in table
    assert "31: median 10 min, last 5 min 38 s" in took
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


def test_backfill_page_says_what_became_of_each_date_and_what_is_ahead(world: Any, web: httpx.Client) -> None:
    backfill(world, pipeline(world, "daily"), "fills")
    page = web.get("/ui/backfills/fills").text
    rows = page.partition('<tbody id="rows">')[2].split("<tr ")[1:]

    assert [row.partition('class="state ')[2].partition('"')[0] for row in rows] == (
        ["succeeded", "failed", "running", "skipped"] + ["waiting"] * 6
    )
    assert 'href="/ui/runs/fills-20260220t050000z"' in rows[0]
    assert '<time class="date" datetime="2026-02-20T05:00:00+00:00">2026-02-20</time>' in rows[0]
    assert 'href="/ui/runs/by-schedule"' in rows[3]
    assert "skipped: its last run succeeded before" in rows[3]
    assert "gets a run" in rows[4]
    assert 'aria-label="1 succeeded, 1 failed, 1 running, 1 skipped, 6 waiting"' in page
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
    world.cluster.set("intervals", of.name, index)
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
    (queued,) = sample.reader.commands()
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


@pytest.mark.parametrize(
    ("path", "first", "column"),
    [
        ("pipelines?sort=-tasks", "big", "descending"),
        ("pipelines?sort=tasks", "sums", "ascending"),
        ("pipelines?sort=next", "big", "ascending"),
        ("pipelines?sort=nonsense", "big", "ascending"),
        ("runs?sort=-took", "slow", "descending"),
        ("runs?sort=took", "quick", "ascending"),
        ("workers?sort=-load", "w2", "descending"),
        ("backfills?sort=failed", "none", "ascending"),
        ("backfills?sort=-failed", "some", "descending"),
    ],
)
def test_lists_are_sorted_by_the_column_that_a_reader_chooses(
    world: Any, web: httpx.Client, path: str, first: str, column: str
) -> None:
    big = pipeline(world, "big", of=layered(9))
    finished(world, "quick", layered(2), hours_ago=1)
    finished(world, "slow", layered(2), hours_ago=2, slower=3)
    world.cluster.put(replace(world.worker, id=WorkerId("w2"), load_average=2.5))
    for name, failed in (("some", 2), ("none", 0)):
        backfill(world, big, name, failed=failed, state=BackfillState.PAUSED)
    for run in world.reader.run_list().values():
        if run.backfill is not None:
            world.cluster.set("runs", run.id, None)

    text = web.get(f"/ui/{path}").text
    kind = path[0]

    assert f'aria-sort="{column}"' in text
    if kind != "r":
        assert re.findall(rf'<tr id="{kind}-([^"]+)"', text)[0] == first
    else:
        rows = [row for row in re.findall(r'<tr id="r-([^"]+)"', text) if row in ("quick", "slow")]
        assert rows[0] == first


def test_list_that_is_sorted_goes_on_where_its_page_ended(world: Any, web: httpx.Client) -> None:
    for number in range(150):
        pipeline(world, f"p-{number:03d}", of=layered(1 + number % 7))

    first = web.get("/ui/pipelines?sort=-tasks").text
    (later,) = re.findall(r'href="(/ui/pipelines\?[^"]*cursor=[^"]+)"', first)
    rest = web.get(later.replace("&amp;", "&")).text
    listed = [re.findall(r'<tr id="p-([^"]+)"', text) for text in (first, rest)]

    assert [len(part) for part in listed] == [100, 51]
    assert len({*listed[0], *listed[1]}) == 151
    assert "p-006" in listed[0]
    assert "p-000" in listed[1]


def test_list_of_runs_says_that_only_its_page_is_sorted(world: Any, web: httpx.Client) -> None:
    for number in range(120):
        finished(world, f"sums-{number:03d}", layered(2), hours_ago=1 + number / 10)

    first, all_of_it = web.get("/ui/runs?sort=-took").text, web.get("/ui/runs").text
    (older,) = re.findall(r'href="(/ui/runs\?[^"]*cursor=[^"]+)"', first)
    later = web.get(older.replace("&amp;", "&")).text

    assert "Only the 100 runs of this page are sorted so" in first
    assert "Only the 20 runs of this page are sorted so" in later
    assert 'id="in-page"' not in all_of_it
    assert 'id="in-page"' not in web.get("/ui/runs?sort=-took&state=failed").text


def test_runs_are_named_shortly_and_copied_whole(world: Any, web: httpx.Client) -> None:
    world.put_live(world.new_run("sums-20260301t054500z-a1377a"))
    row = web.get("/ui/runs").text.partition('<tr id="r-')[2].partition("</tr>")[0]

    assert "<code>20260301t054500z-a1377a</code>" in row
    assert 'value="sums-20260301t054500z-a1377a" aria-label="Copy' in row


def test_pipeline_page_draws_and_counts_dates_without_a_run_and_leads_to_their_backfill(
    world: Any, web: httpx.Client
) -> None:
    dated(world)

    text = web.get("/ui/pipelines/daily").text
    columns = re.findall(r'<a href="([^"]+)" aria-label="([^"]+)"', text.partition('id="grid"')[2])
    gaps = text.partition('id="gaps"')[2].partition("</p>")[0]

    assert len(columns) == 22
    assert columns[0] == ("/ui/runs/daily-020", "Run daily-020, failed, 11 min 9 s, scheduled, 2026-02-09")
    assert ("/ui/runs/daily-009", "Run daily-009, succeeded, 7 min 43 s, backfill, 2026-02-20") in columns
    assert any(said.startswith("Run daily-by-hand") and "2026-02-26 19:00 CET" in said for _, said in columns)
    empty = [said for _, said in columns if said.startswith("No run")]
    assert empty == ["No run, 2026-02-17", "No run, 2026-02-24", "No run, 2026-02-25"]
    assert "3 dates without a run" in gaps
    assert "/ui/pipelines/daily/backfill?from=2026-02-24&amp;to=2026-02-25" in gaps
    assert "failed 4 of the last 19, first on 2026-02-09" in text


def test_a_live_run_is_no_gap_however_many_runs_were_created_after_it(world: Any, web: httpx.Client) -> None:
    record = dated(world, days=60)
    ends = world.clock.now().replace(hour=5, minute=0) - timedelta(days=5)
    long_ago = world.clock.now() - timedelta(days=90)
    live = world.new_run("daily-live", pipeline=record.name, logical_date=ends, created_at=long_ago)
    world.cluster.put(live)

    for page in ("pipelines/daily", "runs/daily-008"):
        text = web.get(f"/ui/{page}").text
        assert "Run daily-live, running" in text
        assert "No run, 2026-02-24" not in text
    world.cluster.put(replace(live, state=RunState.STOPPING))
    assert "Run daily-live, stopping" in web.get("/ui/pipelines/daily").text
    assert "Run daily-live" not in web.get("/ui/pipelines/daily?view=durations").text


def test_dates_of_a_run_that_covers_several_are_no_gaps(world: Any, web: httpx.Client) -> None:
    record = dated(world)
    last = world.clock.now().replace(hour=5, minute=0) - timedelta(days=4)
    span = DataInterval(start=last - timedelta(days=2), end=last)
    run = finished(world, "as-one", layered(2), hours_ago=2)
    run = replace(run, pipeline=record.name, data_interval=span, logical_date=last)
    world.cluster.set("runs", run.id, None)
    world.cluster.set("intervals", record.name, world.reader.intervals(record.name).with_run(run))

    gaps = web.get("/ui/pipelines/daily").text.partition('id="gaps"')[2].partition("</p>")[0]

    assert "1 date without a run" in gaps


def test_pipeline_page_says_of_which_dates_gaps_are_counted(world: Any, web: httpx.Client) -> None:
    dated(world)
    times = re.compile(r"<time[^>]*>([^<]*)</time>")

    page = web.get("/ui/pipelines/daily").text.partition('id="gaps"')[2].partition("</p>")[0]
    calendar = web.get("/ui/pipelines/daily?view=calendar").text.partition("of which 3 without")[0][-300:]

    assert times.findall(page)[:2] == ["2026-02-09", "2026-03-01"]
    assert times.findall(calendar) == ["2026-02-09", "2026-03-01"]


def test_columns_of_few_runs_are_wide_and_of_many_as_narrow_as_their_marks(
    world: Any, web: httpx.Client
) -> None:
    dated(world, days=80, gaps=())

    many = web.get("/ui/pipelines/daily").text
    beside = web.get("/ui/runs/daily-008").text
    width = [
        int(re.search(rf'<svg id="{name}" class="grid" width="(\d+)"', text)[1])  # type: ignore[index]
        for name, text in (("grid", many), ("past-grid", beside))
    ]

    assert 1_150 < width[0] < 1_385, "the width of a page"
    assert width[1] < 500


def test_dates_of_which_the_index_knows_nothing_are_no_gaps(world: Any, web: httpx.Client) -> None:
    record = dated(world)
    index = world.reader.intervals(record.name)
    world.cluster.set("intervals", record.name, replace(index, begins=world.clock.now() - timedelta(days=8)))

    gaps = web.get("/ui/pipelines/daily").text.partition('id="gaps"')[2].partition("</p>")[0]

    assert "2 dates without a run" in gaps


@pytest.mark.parametrize("path", ["", "/tasks/task-0001", "/tasks/task-0001/log"])
def test_run_task_and_log_pages_have_the_last_runs_beside_them(
    world: Any, web: httpx.Client, path: str
) -> None:
    dated(world)

    text = web.get(f"/ui/runs/daily-008{path}").text
    past = text.partition('<details id="past"')[2].partition("</details>")[0]

    assert "failed 4 of the last 1" in past
    assert 'class="here"><title>Run daily-008, failed' in past
    assert past.count('<rect class="marked"') == bool(path)
    assert ('href="/ui/runs/daily-010/tasks/task-0001"' in past) == bool(path)


def test_pipeline_whose_newest_run_failed_begins_with_that(world: Any, web: httpx.Client) -> None:
    dated(world, days=2, gaps=(0, 1))

    page = web.get("/ui/pipelines/daily").text
    listed = web.get("/ui/pipelines").text.partition('<tr id="p-daily">')[2]

    assert '<span class="state failed">' in page.partition('<div class="head">')[2].partition("</div>")[0]
    assert '<span class="state failed">' in listed.partition("</td>")[0]


def test_backfill_is_previewed_and_created_on_the_page(world: Any, web: httpx.Client) -> None:
    dated(world)
    world.deciding = False

    asked = web.get("/ui/pipelines/daily/backfill?from=2026-02-23&to=2026-02-26&max_parallel=2").text
    form = asked.partition('<form class="actions" id="create"')[2].partition("</form>")[0]
    action = re.search(r'action="([^"]+)"', form)
    fields = dict(re.findall(r'name="([^"]+)" value="([^"]+)"', form))

    assert "<b>2 runs</b> for 4 dates, 2 at once." in asked
    assert action is not None
    assert web.post(action[1], data=fields).status_code == 303
    (queued,) = world.reader.commands()
    assert queued.command.backfill == "daily-20260223-20260226"
    assert queued.command.request.total == 4
    assert queued.command.request.max_parallel == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", None),
        ("?from=2026-02-23", "to: "),
        ("?from=soon&to=2026-02-23", "neither a day such as 2026-01-31"),
        ("?from=2026-02-23&to=2026-02-23&max_parallel=none", "max_parallel: "),
        ("?from=2026-02-23&to=2026-02-23&max_parallel=²", "max_parallel: "),
        ("?from=2031-02-23&to=2031-02-24", "has no past date"),
    ],
)
def test_backfill_form_says_what_is_wrong(
    world: Any, web: httpx.Client, query: str, said: str | None
) -> None:
    dated(world)

    text = web.get(f"/ui/pipelines/daily/backfill{query}").text

    assert 'id="plan"' not in text
    assert ('id="refused"' in text) == (said is not None)
    assert (said or "") in text


@pytest.mark.parametrize(
    ("task", "shown"), [("", "succeeded after 11 min 9 s"), ("&task=task-0001", "failed after ")]
)
def test_durations_are_drawn_over_time_with_state_and_median(
    world: Any, web: httpx.Client, task: str, shown: str
) -> None:
    dated(world)

    text = web.get(f"/ui/pipelines/daily?view=durations{task}").text
    drawn = text.partition('<svg id="points"')[2].partition("</svg>")[0]

    assert "durations, oldest first" in drawn
    assert drawn.count('class="over"') == 19
    assert f"{shown}" in drawn
    assert '<path class="median"' in drawn


def test_run_is_compared_with_any_run_of_its_pipeline(world: Any, web: httpx.Client) -> None:
    dated(world)

    text = web.get("/ui/runs/daily-000?view=compare&against=daily-008").text
    other = web.get("/ui/runs/daily-000?view=compare&against=sums-1")

    assert 'value="daily-008"' in text
    assert "<option>daily-010</option>" in text
    assert other.status_code == 404


@pytest.mark.parametrize(
    ("path", "also"),
    [
        ("pipelines/daily", {"intervals": 1, "runs": 2}),
        ("pipelines/daily?view=calendar", {"intervals": 1, "runs": 2}),
        ("pipelines/daily?view=durations", {"runs": 2}),
        ("runs/live", {"intervals": 1, "run": 1, "runs": 1}),
        ("runs/live/tasks/task-0000", {"intervals": 1, "run": 1, "runs": 1}),
    ],
)
def test_page_of_a_pipeline_or_run_reads_nothing_twice(
    world: Any, web: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, also: dict[str, int]
) -> None:
    dated(world)
    part_done(world, "live", layered(5), pipeline=PipelineName("daily"))
    web.get(f"/ui/{path}")  # now it knows the runs that have ended
    reads: Counter[str] = Counter()

    def counted(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *asked: reads.update([name]) or read(*asked)

    for name in ("intervals", "pipeline", "run", "runs", "schedulers"):
        monkeypatch.setattr(TreeClusterReader, name, counted(name, getattr(TreeClusterReader, name)))
    assert web.get(f"/ui/{path}").status_code == 200

    assert reads == {"pipeline": 1, "schedulers": 2, **also}, "the frame has its own read of the schedulers"


def test_graph_of_a_run_writes_no_texts_of_tasks_that_are_folded(
    world: Any, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    part_done(world, "live", fan(100))
    written: list[str] = []
    write = run_page.node_text
    monkeypatch.setattr(run_page, "node_text", lambda task, *more: written.append(task) or write(task, *more))

    assert "alike, " in web.get("/ui/runs/live").text
    assert len(written) == 3


def test_calendar_has_a_year_of_dates_with_those_without_a_run(world: Any, web: httpx.Client) -> None:
    dated(world, days=365, gaps=(4, 5, 12, 200))

    answer = web.get("/ui/pipelines/daily?view=calendar")
    drawn = answer.text.partition('<svg id="calendar"')[2].partition("</svg>")[0]
    with web.stream("GET", "/ui/pipelines/daily?view=calendar") as packed:
        sent = b"".join(packed.iter_raw())

    assert "366 dates from " in answer.text
    assert ", of which 4 without a run" in answer.text
    assert '<a href="/ui/runs/daily-300" aria-label="2025-05-05 06:00, succeeded">' in drawn
    assert 'href="/ui/pipelines/daily/backfill?from=2026-02-17&amp;to=2026-02-17"' in drawn
    assert len(sent) < LARGEST_PAGE
