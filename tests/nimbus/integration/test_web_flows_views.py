"""Searching and reading pages of a real cluster in a real browser: narrow, dark, in many tabs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nimbus.browser import Keyboard, Tabs, axe_finds, says, scripts_run
from tests.nimbus.web_flows import PIPELINES, Flows


@pytest.fixture(scope="module")
def old_run(flows: Flows, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that has failed."""
    gates = tmp_path_factory.mktemp("gates")
    (gates / "fail-check").touch()
    run = flows.start("has-failed", gates=gates)
    flows.until(run, "failed")
    return run


def _places(run: str) -> list[str]:
    views = ["", "?view=gantt", "?view=events", "?view=compare", "?view=parameters", "?state=failed"]
    return [
        "/",
        "/pipelines",
        "/pipelines?state=failed",
        "/pipelines/orders",
        "/pipelines/training",
        "/workers",
        "/election",
        "/runs",
        "/runs?state=failed",
        *(f"/runs/{run}{view}" for view in views),
        f"/runs/{run}/tasks/check",
        f"/runs/{run}/tasks/release",
        f"/runs/{run}/tasks/check/log?q=row",
        "/search?q=orders",
        "/help",
        "/runs/there-is-none",
        "/nothing",
    ]


def test_user_searches_from_any_page(flows: Flows, keys: Keyboard, old_run: str) -> None:
    keys.press("/")
    keys.type("has-f")
    keys.go("Enter", to="**/ui/search?q=has-f")
    keys.press("j")
    keys.go("Enter", to=f"**/ui/runs/{old_run}")


def test_filter_is_in_the_address_and_stays_over_reload_and_back(
    flows: Flows, tabs: Tabs, old_run: str
) -> None:
    page = tabs()
    keys = flows.open(page, "/runs")
    keys.fill("#filters [name=pipeline]", "orders")
    keys.focus("#filters select")
    keys.type("failed")
    keys.focus("#filters button")
    keys.go("Enter", to="**/ui/runs?pipeline=orders&state=failed")
    shown = page.locator("#rows a[data-row]").all_inner_texts()
    page.reload()
    scripts_run(page)
    assert page.locator("#rows a[data-row]").all_inner_texts() == shown
    keys.focus("#rows a[data-row]")
    keys.go("Enter", to="**/ui/runs/*-*")
    page.go_back()
    scripts_run(page)

    assert old_run in shown
    assert page.locator("#rows a[data-row]").all_inner_texts() == shown
    assert page.locator("#filters select").input_value() == "failed"


def test_theme_is_kept_over_pages_and_reload(flows: Flows, tabs: Tabs) -> None:
    page = tabs(color_scheme="light")
    keys = flows.open(page, "/")
    light = _background(page)
    keys.press("t", "t")
    dark = _background(page)
    keys.go("g", "w", to="**/ui/workers")
    page.reload()

    assert light != dark
    assert _background(page) == dark
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def _background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_every_page_fits_a_narrow_screen(flows: Flows, tabs: Tabs, old_run: str) -> None:
    page = tabs(viewport={"width": 360, "height": 740})
    flows.log_in(page)
    wider = {}
    for place in _places(old_run):
        page.goto(f"{flows.url()}/ui{place}")
        wider[place] = page.evaluate("document.documentElement.scrollWidth - innerWidth")

    assert {place: by for place, by in wider.items() if by > 0} == {}


def test_axe_finds_nothing_on_any_page(flows: Flows, page: Any, old_run: str) -> None:
    page.goto(f"{flows.url()}/ui/login")
    assert axe_finds(page) == "", "login"
    flows.log_in(page)
    for place in _places(old_run):
        page.goto(f"{flows.url()}/ui{place}")
        page.wait_for_load_state()

        assert axe_finds(page) == "", place


def test_eight_tabs_stay_live_at_once(flows: Flows, tabs: Tabs, held_run: str, gates: Path) -> None:
    first = tabs()
    flows.log_in(first)
    eight = [first, *(first.context.new_page() for _ in range(7))]
    for tab in eight:
        tab.goto(f"{flows.url()}/ui/runs/{held_run}", wait_until="commit")
    for tab in eight:
        scripts_run(tab)
        says(tab, "#t-clean", "running")

    (gates / "hold-clean").unlink()

    for tab in eight:
        says(tab, "#t-clean", "succeeded")


def test_user_sees_which_slots_are_taken(flows: Flows, keys: Keyboard, tabs: Tabs, held_run: str) -> None:
    page = tabs()
    keys = flows.open(page, "/")
    says(page, "#facts", "of 9 busy")
    keys.go("g", "w", to="**/ui/workers")

    says(page, "#rows", "working")
    assert not page.locator("#slots").inner_text().startswith("0 of")


def test_user_pauses_a_pipeline_and_resumes_it(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = flows.open(page, "/pipelines/training", user="olga")
    keys.use("form[action$='/pause'] button")
    says(page, "#decision", "Accepted")
    says(page, ".head .state", "paused")
    keys.use("#actions form[action$='/activate'] button")

    says(page, ".head .state", "active")


def test_tab_shows_a_backfill_that_is_paused_elsewhere(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    flows.open(page, "/pipelines/orders")
    flows.cluster.command(
        "/backfills",
        {
            "id": "march",
            "pipeline": "orders",
            "from": "2026-03-01",
            "to": "2026-03-03",
            "max_parallel": 1,
        },
    )
    says(page, "#reasons", "backfill march")
    flows.cluster.command("/backfills/march/pause", {"reason": "the disk is full"})
    says(page, "#reasons", "paused")
    flows.cluster.command("/backfills/march/cancel", {"reason": "the flow has ended"})


def test_user_compares_two_releases_and_goes_back(flows: Flows, tabs: Tabs, tmp_path: Path) -> None:
    before = flows.cluster.ask("/pipelines/training")["release"]
    folder = shutil.copytree(PIPELINES / "training", tmp_path / "training")
    definition = folder / "pipeline.yaml"
    definition.write_text(definition.read_text().replace("[gpu]}", "[gpu], retries: {limit: 3}}"))
    (folder / "tasks" / "fit.py").write_text('raise SystemExit("a mistake")\n')
    mistake = flows.cluster.publish(folder)
    flows.cluster.whole()
    page = tabs()
    keys = flows.open(page, "/pipelines/training", user="olga")
    keys.focus("#releases .head a")
    keys.go("Enter", to="**/ui/pipelines/training/releases")
    says(page, f"#rel-{mistake}", "active")
    keys.focus(f"#rel-{before} a[href*=against]")
    keys.go("Enter", to=f"**/releases/{before}?against={mistake}")
    says(page, "#definition", "retries")
    keys.focus("#files a[href*='fit.py']")
    keys.go("Enter", to="**file=tasks**")
    says(page, "#text .removed", "a mistake")
    says(page, "#text .added", "a worker without the label ran this")
    keys.fill("#activate [name=reason]", "the release has a mistake")
    keys.press("Enter")

    says(page, "#decision", "Accepted")
    assert flows.cluster.ask("/pipelines/training")["release"] == before
    keys.go("g", "a", to="**/ui/commands")
    says(page, "#rows tr", "the release has a mistake")


def test_keys_are_listed_everywhere_and_escape_closes_the_list(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = flows.open(page, "/runs")
    keys.press("?")
    page.wait_for_selector("#keys[open]")
    assert "go to Election" in page.locator("#keys").inner_text()
    keys.press("Escape")
    page.wait_for_selector("#keys", state="hidden")

    keys.go("g", "e", to="**/ui/election")


def test_reader_who_scrolls_up_in_a_log_stays_there_until_they_go_to_its_end(
    flows: Flows, tabs: Tabs, gates: Path, eventually: Callable[..., None]
) -> None:
    (gates / "hold-extract").touch()
    run = flows.start("scrolled", rows=1000, gates=gates)
    flows.until(run, "running", "extract")
    page = tabs()
    flows.log_in(page)
    page.goto(f"{flows.url()}/ui/runs/{run}/tasks/extract/log?attempt=1")
    keys = Keyboard(page)
    says(page, "[data-log][data-followed]", "tick 1")
    keys.focus("[data-log]")
    keys.press("Home")
    seen = page.locator("#log-end").inner_text()
    page.wait_for_selector(f"#log-end:not(:text-is('{seen}'))")
    assert page.evaluate("document.querySelector('[data-log]').scrollTop") == 0
    keys.press("End")
    for _ in range(2):  # the first growth may have begun before the key was handled
        seen = page.locator("#log-end").inner_text()
        page.wait_for_selector(f"#log-end:not(:text-is('{seen}'))")
        eventually(lambda: _below(page) < 40, what="the end to be in view")
    (gates / "hold-extract").unlink()
    flows.stop(run)


def _below(page: Any) -> float:
    """Pixels of the log below the visible part."""
    return float(
        page.evaluate(
            "(() => { const log = document.querySelector('[data-log]');"
            "return log.scrollHeight - log.scrollTop - log.clientHeight })()"
        )
    )
