"""Pages in a real browser: keyboard, live updates, policy violations, accessibility."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nimbus.access.gate import AccessGate
from nimbus.access.oidc import GroupRole
from nimbus.adapters.oidc import OidcProvider
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.runs.task_run import Outcome
from nimbus.scheduler.output_files import FolderFiles
from nimbus.web.app import add_pages
from nimbus.worker.data.folder_checks import MARK
from tests.nimbus.browser import Tabs, axe_finds, says, says_when_it_looks, scripts_run
from tests.nimbus.integration.oidc_issuer import CLIENT, Issuer, verifier
from tests.nimbus.integration.web_samples import (
    backfill,
    commands,
    datasets,
    dated,
    hostile,
    layered,
    part_done,
    pipeline,
    terms,
)


def _focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.textContent")


def test_reader_finds_why_a_task_waits_by_keyboard_alone(world: Any, api_url: str, page: Any) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/help")
    scripts_run(page)

    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/ui/runs")
    scripts_run(page)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/runs/sums-live")
    scripts_run(page)
    for _ in range(9):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks/task-*")

    assert page.locator("#why").inner_text() == "no free worker: the only slot is busy"


def test_graph_is_walked_with_arrows_and_keeps_the_focus_while_it_changes(
    world: Any, api_url: str, page: Any
) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/runs/sums-live")
    scripts_run(page)
    page.focus("#n-task-0000")
    page.keyboard.press("ArrowRight")
    after = _focused(page)

    part_done(world, "sums-live", layered(10), share=0.9)
    says(page, "#counts", "8 succeeded")

    assert re.fullmatch(r"n-task-000[3-5]", after)
    assert _focused(page) == after
    assert page.locator("#facts time[title]").first.get_attribute("title").startswith("20")


def test_graph_is_zoomed_searched_and_shows_what_a_node_needs_and_is_needed_by(
    world: Any, api_url: str, page: Any
) -> None:
    part_done(world, "sums-live", layered(40))
    page.goto(f"{api_url}/ui/runs/sums-live")
    scripts_run(page)

    def width() -> float:
        found: float = page.locator("#graph").bounding_box()["width"]
        return found

    before = width()
    page.get_by_role("button", name="Larger").click()
    larger = width()
    part_done(world, "sums-live", layered(40), share=0.9)
    says(page, "#counts", "35 succeeded")
    kept = width()
    page.get_by_role("button", name="Fit").click()
    room = page.locator("#canvas").bounding_box()["width"]
    page.get_by_label("Find a node").fill("0021")
    hits = page.locator(".graph .hit").evaluate_all("(all) => all.map((one) => one.id)")
    page.keyboard.press("Enter")
    focused = _focused(page)
    near = page.locator(".graph .near").count()

    assert larger == pytest.approx(1.25 * before, rel=0.02) == kept
    assert width() <= room
    assert (hits, focused) == (["n-task-0021"], "n-task-0021")
    assert near == len(_related(layered(40), "task-0021"))
    assert page.locator("#near").get_attribute("d")


def _related(specs: list[Any], name: str) -> set[str]:
    """All tasks before and after one."""
    needs = {spec.name: set(spec.needs) for spec in specs}
    before, after = set(needs[name]), {one for one, of in needs.items() if name in of}
    for one in reversed(needs):  # tasks are in the order of their needs
        before |= needs[one] if one in before else set()
    for one, of in needs.items():
        after |= {one} if of & after else set()
    return before | after


@pytest.mark.parametrize("view", ["", "?view=gantt"])
def test_failed_run_says_all_in_one_place_above_its_drawing(
    world: Any, api_url: str, tabs: Tabs, view: str
) -> None:
    world.failed("sums-failed")
    page = tabs(viewport={"width": 1440, "height": 900})
    page.goto(f"{api_url}/ui/runs/sums-failed{view}")
    scripts_run(page)
    place = page.locator("#failures")

    assert page.locator("#canvas").bounding_box()["y"] <= 250
    assert page.locator("h1").inner_text() == "sums · 2026-03-01 06:00Z"
    assert page.locator("main").inner_text().partition("Graph")[0].count("exit 1") == 1
    assert "extract failed after 2 attempts" in place.inner_text()
    assert "2026-03-01 06:05Z" in place.inner_text()
    assert page.locator(".primary").all_inner_texts() == ["Run again…"]
    assert place.locator(".primary").count() == 1
    assert "1 of 2 done" in page.locator("#facts").inner_text()
    page.click("#rerun summary")
    assert place.locator("#rerun [name=reason]").is_visible()


def test_hostile_texts_run_no_script(world: Any, api_url: str, page: Any) -> None:
    hostile(world)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))

    for path in (
        "",
        "?view=gantt",
        "?view=events",
        "?view=parameters",
        "/tasks/task-0001",
        "/tasks/task-0001/log",
    ):
        page.goto(f"{api_url}/ui/runs/hostile-1{path}")
        scripts_run(page) if "log" not in path else page.wait_for_selector("[data-followed]")

    assert dialogs == []


def test_what_the_policy_refuses_is_noticed_in_a_document_that_was_left(
    api_url: str, page: Any, faults: list[str]
) -> None:
    page.goto(f"{api_url}/ui/runs")
    page.evaluate(  # a document that is left at once does not get the event
        """() => new Promise((noticed) => {
          document.addEventListener("securitypolicyviolation", noticed, {once: true});
          try { document.body.innerHTML = "x" } catch { /* refused */ }
        })"""
    )
    page.goto(f"{api_url}/ui/help")
    scripts_run(page)

    assert [fault.split()[1] for fault in faults] == ["require-trusted-types-for"]
    faults.clear()


def test_reader_walks_from_a_run_to_the_dataset_that_it_pinned(world: Any, api_url: str, page: Any) -> None:
    datasets(world)
    page.goto(f"{api_url}/ui/runs/report-1")
    scripts_run(page)
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/ui/datasets")
    scripts_run(page)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/datasets/days")
    scripts_run(page)
    page.focus("#n-p-shop")
    page.keyboard.press("ArrowRight")
    published = _focused(page)
    page.keyboard.press("ArrowRight")

    assert published in ("n-d-days", "n-d-regions")
    assert _focused(page) == "n-p-report"


def test_log_grows_in_the_page_and_its_lines_can_be_searched(world: Any, api_url: str, page: Any) -> None:
    run = world.opened(world.new_run("sums-live"), "extract")
    attempt = AttemptId(run.id, TaskName("extract"), 1)
    world.logs.append(attempt, 0, b"".join(b"line %06d\n" % n for n in range(60_000)))
    page.goto(f"{api_url}/ui/runs/sums-live/tasks/extract")
    page.wait_for_selector("[data-followed]")
    page.keyboard.press("l")
    page.wait_for_url("**/log?attempt=1")

    says(page, "[data-log]", "line 000000")
    world.logs.append(attempt, 60_000 * 12, b"the last line\n")
    says(page, "[data-log]", "the last line")
    page.fill("#log-search [name=q]", "line 012345")
    page.keyboard.press("Enter")
    page.wait_for_selector("#hits a")
    page.click("#hits a")

    page.wait_for_url(f"**offset={12345 * 12}*")
    assert page.locator("[data-log] pre").first.inner_text().startswith("line 012345")


def test_run_is_stopped_by_a_form_and_the_page_shows_it(world: Any, api_url: str, page: Any) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/runs/sums-live")
    page.click("#stop summary")
    page.fill("#stop [name=reason]", "not needed")
    page.click("#stop button")

    page.wait_for_selector("#decision")
    assert page.locator("#decision").inner_text().startswith("Accepted by epoch 7")


def test_runs_of_a_page_are_ticked_at_once_and_previewed(world: Any, api_url: str, page: Any) -> None:
    for number in range(3):
        part_done(world, f"sums-{number}", layered(4))
    page.goto(f"{api_url}/ui/runs")
    scripts_run(page)
    page.focus("#tick-all")
    page.keyboard.press("Space")
    page.focus("#selection button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/selection?**")

    assert page.locator("h1").inner_text() == "Stop 3 runs?"
    assert page.locator("#main tbody tr").count() == 3


def test_page_works_without_scripts(world: Any, api_url: str, browser: Any) -> None:
    part_done(world, "sums-live", layered(10))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{api_url}/ui/runs")
    page.click("text=sums-live")
    page.click("#tabs >> text=Gantt")

    assert page.locator("#gantt a").count() == 10
    assert page.locator("#task-rows time").first.inner_text().startswith("since ")
    context.close()


def test_tab_goes_on_after_its_scheduler_was_away_and_another_leads(
    world: Any, page: Any, eventually: Callable[..., None]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def served() -> ApiServer:
        world.registry = CollectorRegistry()
        services = world.services()
        app = create_app(services)
        add_pages(app, services)
        server = ApiServer(app, port=port)
        server.start()
        return server

    world.opened(world.new_run("sums-live"), "extract")
    first = served()
    page.clock.install()
    page.goto(f"{first.url}/ui/runs/sums-live")
    scripts_run(page)
    first.stop()
    says_when_it_looks(page, "#notice", "does not answer", look_s=5)
    said = page.locator("#notice").inner_text()
    others = page.locator("#notice a").first.get_attribute("href")
    world.health.leading = type(world.health.leading)(id="s2", address="http://s2:8700", epoch=8)
    second = served()
    page.clock.fast_forward(5000)  # it asks again
    page.wait_for_selector("#notice", state="hidden")
    says(page, "#frame", "epoch 8")
    second.stop()

    assert "does not answer" in said
    assert others == "http://s2:8700/ui/runs/sums-live"


def test_page_keeps_what_it_shows_while_zookeeper_is_away(world: Any, api_url: str, page: Any) -> None:
    part_done(world, "sums-live", layered(10))
    page.clock.install()
    page.goto(f"{api_url}/ui/runs/sums-live")
    scripts_run(page)
    world.cluster.available = False
    says_when_it_looks(page, "#notice", "cannot be reached since", look_s=5)
    kept = page.locator("#graph a").count()
    world.cluster.available = True
    page.clock.fast_forward(5000)  # it asks again
    page.wait_for_selector("#notice", state="hidden")

    assert kept == 10


def test_page_is_fetched_again_soon_after_an_answer_that_took_long(
    world: Any, api_url: str, page: Any
) -> None:
    part_done(world, "sums-live", layered(10))
    page.clock.install()
    page.goto(f"{api_url}/ui/runs/sums-live")
    page.wait_for_selector("#live[data-live=yes]")

    def answer_late(route: Any) -> None:
        page.clock.fast_forward(100_000)
        route.continue_()

    page.route("**/ui/runs/sums-live", answer_late, times=1)
    with page.expect_response("**/ui/runs/sums-live"):
        page.clock.fast_forward(30_000)
    part_done(world, "sums-live", layered(10), share=0.9)
    with page.expect_response("**/ui/runs/sums-live"):
        page.clock.fast_forward(5_000)

    says(page, "#counts", "8 succeeded")


def test_notice_keeps_the_focus_of_its_links_while_the_scheduler_stays_away(
    world: Any, server: ApiServer, page: Any
) -> None:
    page.clock.install()
    page.goto(f"{server.url}/ui/runs")
    scripts_run(page)
    server.stop()
    says_when_it_looks(page, "#notice", "s2", look_s=5)
    page.focus("#notice a")
    for _ in range(2):  # it requests again
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/ui/runs")):
            page.clock.fast_forward(5000)

    assert _focused(page) == "Go on at s2"


def test_page_that_says_that_zookeeper_is_away_says_it_once_and_becomes_the_page(
    world: Any, api_url: str, page: Any
) -> None:
    world.cluster.available = False
    page.clock.install()
    page.goto(f"{api_url}/ui/runs")
    with page.expect_response(f"{api_url}/ui/runs"):
        page.clock.fast_forward(5000)
    says(page, "#live", "not live")
    notice = page.locator("#notice").is_visible()
    world.cluster.available = True
    says_when_it_looks(page, "h1", "Runs", look_s=5)

    assert not notice
    assert page.locator("#unavailable").count() == 0


def test_eight_tabs_stay_live(world: Any, api_url: str, page: Any) -> None:
    world.opened(world.new_run("sums-live"), "extract")
    eight = [page, *(page.context.new_page() for _ in range(7))]
    for tab in eight:
        tab.goto(f"{api_url}/ui/runs/sums-live", wait_until="commit")
    for tab in eight:
        scripts_run(tab)

    world.ended(world.reader.run(RunId("sums-live")), "extract", Outcome.SUCCEEDED)
    for tab in eight:
        says(tab, "#counts", "1 succeeded")


def test_answer_to_a_form_stays_and_says_so_while_other_tabs_are_live(
    world: Any, api_url: str, page: Any
) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/runs/sums-live")
    scripts_run(page)
    with page.expect_navigation(url="**/rerun"):
        page.evaluate("document.querySelector('#rerun form').scope.forEach((one) => { one.value = 'half'; })")
        page.evaluate("document.querySelector('#rerun form').requestSubmit()")
    refused = page.locator("h1").inner_text()
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    other = page.context.new_page()
    other.goto(f"{api_url}/ui/runs/sums-live")
    other.wait_for_selector("#live[data-live=yes]")

    says(page, "#live", "as loaded")
    assert (page.locator("h1").inner_text(), fetched) == (refused, [])


def test_header_of_a_narrow_screen_is_low_and_has_the_present_page_in_sight(
    world: Any, api_url: str, tabs: Tabs
) -> None:
    page = tabs(viewport={"width": 360, "height": 740})
    page.goto(f"{api_url}/ui/commands")
    scripts_run(page)
    header, nav, present = (
        page.locator(selector).bounding_box() for selector in ("#top", "#nav", "#nav [aria-current]")
    )

    assert header["height"] < 100
    assert nav["x"] <= present["x"]
    assert round(present["x"] + present["width"]) <= round(nav["x"] + nav["width"])  # it scrolls by pixels


@pytest.mark.parametrize(
    "path", ["/election", "/commands", "/backfills", "/workers", "/datasets", "/datasets/days"]
)
def test_table_is_not_wider_than_a_laptop(world: Any, api_url: str, page: Any, path: str) -> None:
    backfill(world, pipeline(world, "daily"), "fills")
    terms(world, 12)
    commands(world)
    datasets(world)
    page.goto(f"{api_url}/ui{path}")
    scripts_run(page)

    assert (
        page.locator(".scroll").evaluate_all("(all) => all.map((one) => one.scrollWidth - one.clientWidth)")
        == [0] * page.locator(".scroll").count()
    )


@pytest.mark.parametrize("width", [1440, 1000, 390])
def test_letters_of_a_graph_have_at_least_twelve_pixels(
    world: Any, api_url: str, tabs: Tabs, width: int
) -> None:
    chain = [
        replace(spec, needs=(TaskName(f"task-{at - 1:04d}"),) if at else ())
        for at, spec in enumerate(layered(12))
    ]
    part_done(world, "sums-chain", chain)
    page = tabs(viewport={"width": width, "height": 900})
    page.goto(f"{api_url}/ui/runs/sums-chain")
    scripts_run(page)

    scale = page.evaluate(
        "(() => { const svg = document.querySelector('svg.graph');"
        " return svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; })()"
    )
    assert scale >= 0.99
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_axe_finds_nothing(world: Any, api_url: str, page: Any) -> None:
    part_done(world, "sums-live", layered(10), parameters={"day": "2026-03-01"})
    world.failed("sums-failed")
    terms(world)
    commands(world)
    backfill(world, pipeline(world, "daily"), "fills")
    datasets(world)
    release = world.releases.publish("sums", {"a.py": b""}).digest
    paths = (
        "/",
        "/pipelines",
        "/pipelines/sums",
        "/workers",
        "/election",
        "/backfills",
        "/backfills/fills",
        "/pipelines/daily",
        "/runs",
        "/runs/sums-live",
        "/runs/sums-live?view=gantt",
        "/runs/sums-failed/tasks/extract",
        "/runs/sums-failed/tasks/extract/log",
        "/runs/sums-live?view=compare",
        "/runs/sums-live?view=parameters",
        "/pipelines/sums?view=graph",
        "/pipelines/sums?view=durations",
        "/datasets",
        "/datasets/regions?partition=eu",
        "/lineage",
        "/runs/report-1?view=data",
        "/pipelines/daily/releases",
        f"/pipelines/sums/releases/{release}",
        "/commands",
        "/about",
        "/help",
        "/search?q=sums",
        "/runs/unknown",
    )
    for path in paths:
        page.goto(f"{api_url}/ui{path}")
        scripts_run(page) if "/log" not in path else page.wait_for_selector("[data-followed]")
        assert axe_finds(page) == "", path


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize(
    "path",
    [
        "/runs/r1/tasks/extract/output?path=rows.csv",
        "/runs/r1/tasks/extract/log",
        "/pipelines/daily/backfill?from=2026-02-23&to=2026-02-26",
        "/datasets?sort=-data",
        "/workers?state=free",
        "/runs?sort=-took",
    ],
)
def test_axe_finds_nothing_on_narrow_and_wide_pages(
    world: Any, api_url: str, tabs: Tabs, tmp_path: Path, path: str, width: int
) -> None:
    made = tmp_path / "data/sums/r1/extract/1"
    made.mkdir(parents=True)
    (made / "rows.csv").write_text("id,name\n1,ann\n")
    (tmp_path / "data" / MARK).write_text("mark")
    world.outputs = FolderFiles(tmp_path / "data", lambda _given: "mark")
    run = world.opened(world.new_run("r1"), "extract")
    world.ended(run, "extract", Outcome.SUCCEEDED, output="sums/r1/extract/1")
    world.logs.append(AttemptId(run.id, TaskName("extract"), 1), 0, b"INFO read\nWARN slow\nERROR none\n")
    dated(world)
    datasets(world)
    page = tabs(viewport={"width": width, "height": 900})
    page.goto(f"{api_url}/ui{path}")
    scripts_run(page) if "/log" not in path else page.wait_for_selector("[data-followed]")

    assert axe_finds(page) == ""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def asking_url(world: Any, issuer: Issuer) -> Iterator[str]:
    """A server that requires a login, with a provider."""
    jwts = verifier(issuer.url, {"data-platform": GroupRole(role=AccessRole.OPERATOR)})
    gate = AccessGate(required=True, jwts=jwts)
    gate.know_store({}, b"k" * 32)
    provider = OidcProvider(issuer.url, CLIENT, jwts)
    services = replace(world.services(), gate=gate, provider=provider, browser_login=True)
    app = create_app(services)
    add_pages(app, services)
    server = ApiServer(app)
    server.start()
    yield server.url
    server.stop()


def test_login_looks_like_the_other_pages_and_loads_their_style_alone(asking_url: str, tabs: Tabs) -> None:
    page = tabs(viewport={"width": 360, "height": 740}, color_scheme="dark")
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url.removeprefix(asking_url)))
    page.goto(f"{asking_url}/ui/login")
    page.locator("input:focus").wait_for()
    page.keyboard.type("nbs_wrong")
    page.keyboard.press("Enter")
    says(page, "[role=alert]", "not known")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert axe_finds(page) == ""
    assert set(loaded) == {"/ui/login", "/ui/static/login/style.css"}


def test_person_logs_in_at_the_provider_and_sees_what_they_came_for(
    world: Any, asking_url: str, page: Any
) -> None:
    asked: list[QueuedCommand] = []
    decide = world.decide_one
    world.decide_one = lambda queued: asked.append(queued) or decide(queued)
    world.cluster.put(world.new_run("sums-live"))
    page.goto(f"{asking_url}/ui/runs/sums-live?view=gantt")
    assert page.url.endswith("/ui/login?next=%2Fui%2Fruns%2Fsums-live%3Fview%3Dgantt")
    page.get_by_role("link", name="Log in with your organisation").click()
    page.click("#agree")
    page.wait_for_url("**/ui/runs/sums-live?view=gantt")
    scripts_run(page)
    cookies = {cookie["name"]: cookie for cookie in page.context.cookies(asking_url)}
    page.get_by_role("button", name="Pause").first.click()
    page.wait_for_url("**/ui/runs/sums-live?command=*")

    assert set(cookies) == {"nimbus"}, "that of the login is gone"
    assert (cookies["nimbus"]["httpOnly"], cookies["nimbus"]["sameSite"]) == (True, "Lax")
    assert [queued.submitted_by for queued in asked] == ["oidc:ada"]
