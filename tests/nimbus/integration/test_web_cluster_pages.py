"""Pages of the cluster: what needs attention, workers, the election, commands, settings; over real HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from nimbus.api.services import ReadinessCheck
from nimbus.config.settings import Shown
from nimbus.domain.cluster.access import AccessRole, Token
from nimbus.domain.cluster.schedulers import ElectionRole, LeaderReport, LimitUse, TeamUse
from nimbus.domain.cluster.settings import ClusterSettings, Hold, HoldOf
from nimbus.domain.ids import BackfillId, DatasetName, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule
from nimbus.domain.runs.run import Run, RunState
from nimbus.web.home.attention import failing_pipelines
from tests.nimbus.definitions import active
from tests.nimbus.integration.web_pages import Parsed
from tests.nimbus.integration.web_samples import HOSTILE, datasets, layered, pipeline, terms
from tests.nimbus.unit.test_access import a_token


def test_commands_page_names_kinds_in_words(audited: Any, web: httpx.Client) -> None:
    text = web.get("/ui/commands").text

    assert '<option value="stop_run">stop run</option>' in text
    assert ">stop_run<" not in text


def test_address_of_a_scheduler_leads_to_the_pages(web: httpx.Client) -> None:
    answer = web.get("/", headers={"Accept": "text/html"}, follow_redirects=True)

    assert answer.url.path == "/ui/"
    assert "<h1>Cluster</h1>" in answer.text


def test_home_of_an_empty_cluster_says_how_to_begin(world: Any, web: httpx.Client) -> None:
    begin = "nimbus pipeline publish hello --activate"
    assert begin not in web.get("/ui/").text

    world.cluster.set("pipelines", world.record.name, None)

    assert begin in web.get("/ui/").text


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
    assert "2026-03-01 05:59Z" in rows["w3"]
    assert "Its host lacks" in rows["w2"]
    assert "draining" in rows["w3"]
    assert "Cordoned:" in rows["w4"]
    assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["w1", "w2", "w3", "w4", "w5"]),
        ("?state=working", ["w1"]),
        ("?state=free", ["w5"]),
        ("?state=lacks+room&find=", ["w2"]),
        ("?state=draining", ["w3"]),
        ("?state=cordoned", ["w4"]),
        ("?find=GPU", ["w2"]),
        ("?find=host-9&state=cordoned", []),
    ],
)
def test_workers_are_filtered_by_state_and_by_name_host_or_label(
    world: Any, web: httpx.Client, query: str, shown: list[str]
) -> None:
    world.opened(world.new_run("sums-live"), "extract")
    others = {
        "w2": {"lacks": "disk", "labels": ("gpu",)},
        "w3": {"draining": True, "hostname": "host-9"},
        "w4": {},
        "w5": {},
    }
    world.cluster.put(*(replace(world.worker, id=WorkerId(name), **of) for name, of in others.items()))
    world.cluster.put(ClusterSettings(cordoned={WorkerId("w4"): "disk"}))

    text = web.get(f"/ui/workers{query}").text

    assert re.findall(r'<tr id="w-([^"]+)"', text) == shown
    assert ("No worker is on this page." in text) == (not shown)


def test_election_page_says_who_is_next_and_what_it_lacks(world: Any, web: httpx.Client) -> None:
    lacking = web.get("/ui/election").text
    terms(world)
    (two,) = (one for one in world.reader.schedulers() if one.id == "s2")
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
    assert "nobody is next: without the leader nothing starts" in alone
    assert "Hand over" in alone
    assert "Hand over" not in none


def test_election_page_lists_each_term_and_says_what_follows_if_the_leader_dies(
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
    assert text.count('<tr id="t-') == 40
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
    queued = world.reader.commands()
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
    late = said.partition("The schedule of pipeline late is late")[2].partition("</li>")[0]
    assert 'datetime="2026-02-27T05:00:00+00:00"' in late
    assert 'href="/ui/runs/sums-failed"' in said
    assert "extract: " in said.partition("Pipeline sums failed")[2], "the task that failed, and why"
    assert "The schedule of pipeline daily" not in said
    assert "Backfill held of pipeline daily is paused" in said
    assert re.search(r'Dataset days is late</a> <time datetime="2026-02-28T01:00:00', said)


def test_cluster_page_lists_late_datasets(world: Any, web: httpx.Client) -> None:
    datasets(world)
    shop = world.reader.pipeline(PipelineName("shop"))
    fresh = {DatasetName(f"never_{number:02}"): timedelta(hours=1) for number in range(25)}
    profile = replace(shop.profile, fresh={**shop.profile.fresh, **fresh, "soon": timedelta(days=900)})
    world.cluster.put(replace(shop, profile=profile))

    said = web.get("/ui/").text.partition('id="attention"')[2].partition("</section>")[0]

    assert '<a href="/ui/datasets/never_00" data-row>Dataset never_00 is late<' in said
    assert len(re.findall(r'href="/ui/datasets/', said)) == 20
    assert '<a href="/ui/datasets" data-row>6 more datasets are late.' in said
    assert "soon" not in said


def test_cluster_page_lists_no_late_datasets_of_a_pipeline_that_is_not_active(
    world: Any, web: httpx.Client
) -> None:
    datasets(world)
    assert "Dataset days is late" in web.get("/ui/").text
    shop = world.reader.pipeline(PipelineName("shop"))
    world.cluster.put(replace(shop, state=PipelineState.INACTIVE))

    assert "Dataset days" not in web.get("/ui/").text


def test_cluster_page_says_that_nothing_needs_attention_and_what_fires_next(
    world: Any, web: httpx.Client
) -> None:
    pipeline(world, "daily")
    noon = PipelineSpec(
        name=PipelineName("noon"), schedule=Schedule(cron="0 12 * * *", timezone="UTC"), tasks=(*layered(1),)
    )
    world.cluster.put(active(noon, schedule_position=world.clock.now()))
    ready = replace(
        world.health.me, id="s2", role=ElectionRole.QUEUED, epoch=None, missing=(), missing_count=0
    )
    world.cluster.put(ready)

    text = web.get("/ui", follow_redirects=True).text

    assert "Nothing needs attention" in text
    assert "0 of 1 busy</a>, 1 free" in text
    fires = text.partition('id="day"')[2]
    assert re.findall(r'<tr id="day-(\w+)".*?class="ahead"[^>]*>([^<]+)<', fires) == [
        ("daily", "2026-03-02 06:00 CET"),
        ("noon", "2026-03-01 12:00Z"),
    ], "each pipeline once"
    assert "<title>12:00</title>" in fires.partition('id="day-noon"')[2].partition("</tr>")[0]
    assert 'class="fire"' not in web.get("/ui/?hours=1").text


def test_cluster_page_says_that_nobody_leads_or_works(world: Any, web: httpx.Client) -> None:
    world.health.leading = None
    world.cluster.set("workers", "w1", None)

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
    sample.releases.bucket.unavailable = True

    assert "Storage does not answer" in web.get("/ui/commands").text


def test_about_page_says_versions_checks_settings_and_tokens(world: Any, web: httpx.Client) -> None:
    world.health.checks.append(ReadinessCheck(name="storage", ok=False, detail=HOSTILE))
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


def test_cluster_page_names_schedulers_whose_disks_are_full(world: Any, web: httpx.Client) -> None:
    world.cluster.put(replace(world.health.me, disk_free_bytes=300 << 20))

    assert "The disk of scheduler s1 has 300.0 MiB left." in web.get("/ui/").text


def test_cluster_page_counts_runs_that_failed_since_yesterday_by_their_end(
    world: Any, web: httpx.Client
) -> None:
    long_ago = world.clock.now() - timedelta(days=3)
    world.cluster.put(replace(world.failed("slow"), created_at=long_ago))
    world.cluster.put(replace(world.failed("over"), created_at=long_ago, finished_at=long_ago))

    said = web.get("/ui/").text

    assert "Pipeline sums failed</a>" in said
    assert 'href="/ui/runs/slow"' in said.partition('id="attention"')[2].partition("</section>")[0]
    assert "2 runs" not in said, "the other ended earlier"


def test_cluster_page_names_runs_that_have_left_zookeeper(world: Any, web: httpx.Client) -> None:
    ended = world.clock.now() - timedelta(hours=9)
    night = replace(world.failed("night"), created_at=ended, started_at=ended, finished_at=ended)
    morning = replace(
        night, id=RunId("morning"), state=RunState.SUCCEEDED, created_at=ended + timedelta(hours=1)
    )
    for run in (night, morning):
        world.history.store(run)
        world.cluster.set("runs", run.id, None)

    first = web.get("/ui/").text
    for _ in range(200):
        later = web.get("/ui/").text
        if "2 runs, 1 failed" in later:
            break

    assert 'href="/ui/runs/night"' in first.partition('id="attention"')[2].partition("</section>")[0]
    assert "Pipeline sums failed in 1 of 2 runs, and has succeeded since" in later
    assert "21:00, failed" in later.partition('id="day-sums"')[2]


def test_success_of_a_backfill_is_no_recovery(world: Any) -> None:
    now = world.clock.now()
    night = replace(world.failed("night"), finished_at=now)
    filled = replace(night, id=RunId("filled"), state=RunState.SUCCEEDED, backfill=BackfillId("fills"))
    morning = replace(filled, id=RunId("morning"), backfill=None)

    def recovered(*runs: Run) -> list[bool]:
        return [one.recovered for one in failing_pipelines([run.listed() for run in runs], now)]

    assert recovered(filled, night) == [False]
    assert recovered(morning, filled, night) == [True]


def test_holds_are_at_the_top_of_every_page(world: Any, web: httpx.Client) -> None:
    held = Hold(of=HoldOf.TEAM, name="finance", reason=HOSTILE, held_by="ada", held_at=world.clock.now())
    world.cluster.put(ClusterSettings(holds={"freeze": held}))

    for page in ("", "pipelines", "runs", "workers", "help"):
        text = web.get(f"/ui/{page}").text
        assert "team finance is held by ada since" in text.partition("<main")[0]
        assert HOSTILE not in text


def test_workers_page_says_what_each_team_has_and_its_share(world: Any, web: httpx.Client) -> None:
    teams = {"finance": TeamUse(slots=1, waiting=2), "": TeamUse(slots=1)}
    report = LeaderReport(limits=LimitUse(teams=teams))
    world.cluster.put(replace(world.health.me, epoch=7, recovered_at=world.clock.now(), report=report))

    text = web.get("/ui/workers").text

    slots = world.worker.slots
    share = f"{slots / 2:.1f}".removesuffix(".0")
    assert (
        f"Team <bdi>finance</bdi> has 1 of {slots} slots, the share is {share} (weight 1); 2 tasks wait"
        in text
    )
    assert f"Pipelines without an owner have 1 of {slots} slots" in text
