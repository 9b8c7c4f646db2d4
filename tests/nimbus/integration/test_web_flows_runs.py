"""Users' actions on runs, in a real browser with a real cluster, by keyboard only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nimbus.browser import Tabs, says, scripts_run
from tests.nimbus.web_flows import Flows


def test_user_starts_a_run_with_parameters_and_sees_it_wait_for_an_approval(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = flows.open(page, "/", user="olga")
    keys.go("g", "p", to="**/ui/pipelines")
    keys.focus("#p-orders a[data-row]")
    keys.go("Enter", to="**/ui/pipelines/orders")
    keys.use("#start summary")
    keys.fill("#start [name$='.region']", "us")
    keys.fill("#start [name$='.rows']", "3")
    keys.go("Enter", to="**/ui/runs/orders-*")
    run = page.locator("h1").inner_text()
    says(page, "#t-release .text", "approv")
    keys.use("#tabs a[href*='view=parameters']")
    says(page, "#view-parameters", '"us"')

    shown = page.locator("#view-parameters").inner_text()
    flows.stop(run)
    assert "rows" in shown
    assert page.locator("#facts bdi").first.inner_text() == "olga"


def test_user_is_told_which_parameter_is_wrong(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = flows.open(page, "/pipelines/orders", user="olga")
    keys.use("#start summary")
    keys.fill("#start [name$='.rows']", "many")
    keys.press("Enter")

    says(page, "#why", "parameter 'rows' must be of type integer, not 'many'")
    scripts_run(page)
    keys.press("g")  # scripts do not replace the answer
    assert page.locator("h1").inner_text() == "Refused"
    keys.go("r", to="**/ui/runs")


def test_user_finds_why_a_task_waits(flows: Flows, tabs: Tabs) -> None:
    run = flows.start("needs-gpu", "training")
    page = tabs()
    keys = flows.open(page, "/")
    keys.press("/")
    keys.type("needs-g")
    keys.go("Enter", to="**/ui/search?q=needs-g")
    keys.press("j")
    keys.go("Enter", to=f"**/ui/runs/{run}")
    keys.press("j")
    keys.go("Enter", to="**/tasks/fit")

    says(page, "#why", "no worker")
    assert "gpu" in page.locator("#why").inner_text()
    flows.stop(run)


def test_user_approves_a_waiting_task_and_the_same_tab_shows_the_end(flows: Flows, tabs: Tabs) -> None:
    run = flows.start("to-approve")
    flows.until(run, "succeeded", "clean")
    flows.until(run, "succeeded", "check")
    page = tabs()
    keys = flows.open(page, f"/runs/{run}/tasks/release", user="olga")
    keys.fill("#approval [name=reason]", "figures checked")
    keys.focus("#approval button[value=true]")
    keys.go("Enter", to=f"**/ui/runs/{run}?command=*")

    says(page, "#decision", "Accepted by epoch")
    says(page, "h1 + .state", "succeeded")
    says(page, "#t-load", "succeeded")


def test_user_rejects_a_waiting_task_and_the_run_fails(flows: Flows, tabs: Tabs) -> None:
    run = flows.start("to-reject")
    flows.until(run, "succeeded", "clean")
    flows.until(run, "succeeded", "check")
    page = tabs()
    keys = flows.open(page, f"/runs/{run}/tasks/release", user="olga")
    keys.fill("#approval [name=reason]", "a customer is missing")
    keys.use("#approval button[value=false]")

    says(page, "h1 + .state", "failed")
    says(page, "#failures", "a customer is missing")


def test_user_runs_again_from_the_failed_task(flows: Flows, tabs: Tabs, gates: Path) -> None:
    (gates / "fail-check").touch()
    first = flows.start("fails-once", gates=gates)
    flows.until(first, "failed")
    page = tabs()
    keys = flows.open(page, "/", user="olga")
    keys.focus("#attention a[href*='fails-once']")
    keys.go("Enter", to=f"**/ui/runs/{first}")
    keys.focus("#failures a")
    keys.go("Enter", to="**/tasks/check")
    says(page, "[data-log]", "3 orders have no customer")
    (gates / "fail-check").unlink()
    keys.use("#rerun summary")
    keys.fill("#rerun [name=reason]", "the customers are there now")
    keys.go("Enter", to="**?command=*")

    second = page.locator("h1").inner_text()
    assert second != first
    says(page, "#t-check", "succeeded")
    says(page, "#facts", first)
    keys.use("#t-extract a[data-row]")
    says(page, "#facts", "Reused from")
    flows.stop(second)


def test_user_stops_a_run_with_a_reason(flows: Flows, tabs: Tabs, held_run: str) -> None:
    page = tabs()
    keys = flows.open(page, f"/runs/{held_run}", user="olga")
    keys.use("#stop summary")
    keys.fill("#stop [name=reason]", "the wrong day")
    keys.go("Enter", to="**?command=*")

    says(page, "#decision", "Accepted")
    says(page, "h1 + .state", "stopped")
    says(page, "#why", "the wrong day")
    assert page.locator("#stop").count() == 0


def test_user_pauses_a_run_and_resumes_it(flows: Flows, tabs: Tabs, gates: Path, held_run: str) -> None:
    page = tabs()
    keys = flows.open(page, f"/runs/{held_run}", user="olga")
    keys.use("form[action$='/pause'] button")
    says(page, ".head .state", "paused")
    (gates / "hold-clean").unlink()
    says(page, "#t-clean", "succeeded")
    assert "paused" in page.locator("#why").inner_text()

    keys.use("form[action$='/resume'] button")
    page.wait_for_selector(".head .state.paused", state="detached")
    says(page, "#t-release .text", "approv")


def test_user_walks_the_graph_and_reads_the_other_views(flows: Flows, tabs: Tabs, held_run: str) -> None:
    page = tabs()
    keys = flows.open(page, f"/runs/{held_run}")
    keys.focus("#n-extract")
    keys.press("ArrowDown")
    assert page.evaluate("document.activeElement.id") in ("n-check", "n-clean")
    keys.press("ArrowDown")
    assert page.evaluate("document.activeElement.id") == "n-release"
    keys.go("Enter", to="**/tasks/release")
    page.go_back()
    scripts_run(page)

    keys.use("#tabs a[href*='view=gantt']")
    page.wait_for_selector("#gantt a")
    keys.use("#tabs a[href*='view=events']")
    says(page, "#view-events", "attempt started")
    keys.use("#command summary")
    assert "nimbus run start orders" in page.locator("#start-command").inner_text()


def test_user_compares_a_run_with_the_last_one_that_succeeded(flows: Flows, tabs: Tabs) -> None:
    earlier = flows.start("was-good", rows=5)
    for needed in ("clean", "check"):
        flows.until(earlier, "succeeded", needed)
    flows.cluster.command(f"/runs/{earlier}/tasks/release/approval", {"approved": True, "reason": "good"})
    flows.until(earlier, "succeeded")
    run = flows.start("is-compared", rows=7)
    page = tabs()
    keys = flows.open(page, f"/runs/{run}")
    keys.use("#tabs a[href*='view=compare']")

    says(page, "#view-compare", "rows")
    compared = page.locator("#view-compare table").first.inner_text()
    flows.stop(run)
    assert compared.split() == ["Parameter", "Now", "Then", "rows", "7", "5"]


@pytest.mark.timeout(600)
def test_user_follows_a_log_of_200_megabytes_and_finds_words_in_it(
    flows: Flows, tabs: Tabs, gates: Path
) -> None:
    gate = gates / "talk"
    gate.touch()
    run = flows.start("long-log", "noisy", mebibytes=200, gate=gate)
    flows.until(run, "running", "talk")
    page = tabs()
    page.set_default_timeout(240_000)  # until a busy machine has stored it
    keys = flows.open(page, f"/runs/{run}/tasks/talk")
    page.wait_for_selector("[data-followed]")
    keys.press("l")
    page.wait_for_url("**/log?attempt=1")
    says(page, "[data-log]", "tick 5")
    gate.unlink()
    says(page, "[data-log]", "penguins")

    shown = page.evaluate("document.querySelector('[data-log]').textContent.length")
    assert 1 << 20 < shown < 3 << 20, "the window is full, and has bounds"
    assert page.evaluate("window.find('PENGUINS')"), "what Ctrl-F finds"
    assert page.evaluate("getSelection().toString()") == "penguins"
    assert not page.evaluate("window.find('walrus', false, true)"), "it is 100 MB away"

    keys.fill("#log-search [name=q]", "walrus")
    keys.press("Enter")
    page.wait_for_selector("#hits")
    for _ in range(3):  # 32 MiB each
        assert page.locator("#hits li").count() == 0
        further = page.locator("#hits p a").get_attribute("href")
        keys.use("#hits p a")
        page.wait_for_url(f"**/log{further}")
    keys.use("#hits li a")
    page.wait_for_url("**offset=*")
    assert page.locator("[data-log] pre").first.inner_text().startswith("here is the walrus")


def test_user_without_scripts_starts_and_stops_a_run(flows: Flows, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    flows.log_in(page, "olga")
    page.goto(f"{flows.url()}/ui/pipelines/orders")
    page.click("#start summary")
    page.click("#start form.fields button")
    page.wait_for_url("**/ui/runs/orders-*")
    page.click("#stop summary")
    page.fill("#stop [name=reason]", "not needed")
    page.click("#stop button")
    page.wait_for_url("**command=*")

    assert page.locator("#decision").inner_text().startswith("Accepted by epoch")
    context.close()
