"""Pages in a real browser: keyboard, live updates, policy violations, accessibility."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import psutil
import pytest
from prometheus_client import CollectorRegistry

from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.run import Outcome
from nimbus.web.app import add_pages
from tests.web_samples import hostile, layered, part_done

_BROWSER = shutil.which("chromium-headless-shell")
_MISSING = [
    *(["the package playwright: run make setup"] if find_spec("playwright") is None else []),
    *(["chromium-headless-shell: apt-get install chromium-headless-shell"] if _BROWSER is None else []),
]

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  violations.push(`${event.violatedDirective} ${event.sourceFile}:${event.lineNumber} ${event.sample}`));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium. Without one the tests are skipped, and fail in CI."""
    if _MISSING:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not here: {', '.join(_MISSING)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=_BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def _browser_stays(long_lived: Any) -> Iterator[None]:
    """A browser starts processes of its own when it needs them; they end with it."""
    yield
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name().startswith(("chrom", "node")):
                long_lived.pids.add(child.pid)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab that must end without a violation of the policy and without an error of a script."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    context.add_init_script(WATCH)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    violations = page.evaluate("window.violations || []")
    context.close()
    assert errors == []
    assert violations == []


def _focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.textContent")


def _says(page: Any, selector: str, text: str) -> None:
    """Wait for a text. Not by a function: the policy of the pages lets no text become code."""
    page.locator(selector, has_text=text).first.wait_for(state="attached")


def _scripts_run(page: Any) -> None:
    page.wait_for_selector("#live:not(:empty)")


def test_reader_finds_why_a_task_waits_by_keyboard_alone(world: Any, api_url: str, page: Any) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/help")
    _scripts_run(page)

    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/ui/runs")
    _scripts_run(page)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/runs/sums-live")
    _scripts_run(page)
    for _ in range(9):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks/task-*")

    assert page.locator("#why").inner_text() == "no free worker: all 1 slots are busy"


def test_graph_is_walked_with_arrows_and_keeps_the_focus_while_it_changes(
    world: Any, api_url: str, page: Any
) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/runs/sums-live")
    _scripts_run(page)
    page.focus("#n-task-0000")
    page.keyboard.press("ArrowDown")
    below = _focused(page)

    part_done(world, "sums-live", layered(10), share=0.9)
    _says(page, "#counts", "8 succeeded")

    assert re.fullmatch(r"n-task-000[3-5]", below)
    assert _focused(page) == below
    assert page.locator("#facts time[title]").first.get_attribute("title").startswith("20")


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
        _scripts_run(page) if "log" not in path else page.wait_for_selector("[data-followed]")

    assert dialogs == []


def test_log_grows_in_the_page_and_its_lines_can_be_searched(world: Any, api_url: str, page: Any) -> None:
    run = world.opened(world.new_run("sums-live"), "extract")
    attempt = AttemptId(run.id, TaskName("extract"), 1)
    world.logs.append(attempt, 0, b"".join(b"line %06d\n" % n for n in range(60_000)))
    page.goto(f"{api_url}/ui/runs/sums-live/tasks/extract")
    page.wait_for_selector("[data-followed]")
    page.keyboard.press("l")
    page.wait_for_url("**/log?attempt=1")

    _says(page, "[data-log]", "line 000000")
    world.logs.append(attempt, 60_000 * 12, b"the last line\n")
    _says(page, "[data-log]", "the last line")
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


def test_page_works_without_scripts(world: Any, api_url: str, browser: Any) -> None:
    part_done(world, "sums-live", layered(10))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{api_url}/ui/runs")
    page.click("text=sums-live")
    page.click("#tabs >> text=Gantt")

    assert page.locator("#gantt a").count() == 8
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
    page.goto(f"{first.url}/ui/runs/sums-live")
    _scripts_run(page)
    first.stop()
    page.wait_for_selector("#notice:not([hidden])")
    said = page.locator("#notice").inner_text()
    others = page.locator("#notice a").first.get_attribute("href")
    world.health.leading = type(world.health.leading)(id="s2", address="http://s2:8700", epoch=8)
    second = served()
    page.wait_for_selector("#notice", state="hidden")
    _says(page, "#frame", "epoch 8")
    second.stop()

    assert "does not answer" in said
    assert others == "http://s2:8700/ui/runs/sums-live"


def test_page_keeps_what_it_shows_while_zookeeper_is_away(world: Any, api_url: str, page: Any) -> None:
    part_done(world, "sums-live", layered(10))
    page.goto(f"{api_url}/ui/runs/sums-live")
    _scripts_run(page)
    world.cluster.set_down(True)
    _says(page, "#notice", "cannot be reached since")
    kept = page.locator("#graph a").count()
    world.cluster.set_down(False)
    page.wait_for_selector("#notice", state="hidden")

    assert kept == 10


def test_eight_tabs_stay_live(world: Any, api_url: str, browser: Any) -> None:
    context = browser.new_context()
    context.set_default_timeout(120_000)
    world.opened(world.new_run("sums-live"), "extract")
    tabs = [context.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto(f"{api_url}/ui/runs/sums-live", wait_until="commit")
    for tab in tabs:
        _scripts_run(tab)

    world.ended(world.cluster.run(RunId("sums-live")), "extract", Outcome.SUCCEEDED)
    for tab in tabs:
        _says(tab, "#counts", "1 succeeded")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(world: Any, api_url: str, browser: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    part_done(world, "sums-live", layered(10), parameters={"day": "2026-03-01"})
    world.failed("sums-failed")
    context = browser.new_context(color_scheme=scheme)
    context.set_default_timeout(120_000)
    page = context.new_page()
    paths = (
        "/",
        "/pipelines",
        "/pipelines/sums",
        "/workers",
        "/election",
        "/runs",
        "/runs/sums-live",
        "/runs/sums-live?view=gantt",
        "/runs/sums-live?view=events",
        "/runs/sums-failed/tasks/extract",
    )
    for path in paths:
        page.goto(f"{api_url}/ui{path}")
        _scripts_run(page)
        found = Axe().run(page)

        assert found.violations_count == 0, (path, found.generate_report())
    context.close()
