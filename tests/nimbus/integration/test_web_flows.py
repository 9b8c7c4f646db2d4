"""Users' actions in a real browser with a real cluster, by keyboard only: on runs, in lists and logs, logins.

The last tests kill parts of the cluster: the user stays in the tab and continues. All in one file, because
the cluster starts once for each file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from tests.nimbus.browser import Keyboard, Tabs, axe_finds, says, scripts_run
from tests.nimbus.chaos.cluster import number_of, until
from tests.nimbus.web_flows import PIPELINES, Flows
from tests.thorough import thorough


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
    run = page.url.partition("/runs/")[2].partition("?")[0]
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
    assert axe_finds(page) == ""
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

    second = page.locator("#run-id").inner_text()
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
    keys.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") in ("n-check", "n-clean")
    keys.press("ArrowRight")
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
def test_user_follows_a_log_of_80_megabytes_and_finds_words_in_it(
    flows: Flows, tabs: Tabs, gates: Path, eventually: Callable[..., None]
) -> None:
    gate = gates / "talk"
    gate.touch()
    run = flows.start("long-log", "noisy", mebibytes=80, gate=gate)
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

    def shown() -> int:
        return int(page.evaluate("document.querySelector('[data-log]').textContent.length"))

    # A page that lags behind jumps to the end, and then reads earlier parts.
    eventually(lambda: shown() > 1 << 20, what="the window is full")
    assert shown() < 3 << 20, "it has bounds"
    assert page.evaluate("window.find('PENGUINS')"), "what Ctrl-F finds"
    assert page.evaluate("getSelection().toString()") == "penguins"
    assert not page.evaluate("window.find('walrus', false, true)"), "it is 40 MB away"

    keys.fill("#log-search [name=q]", "walrus")
    keys.press("Enter")
    page.wait_for_selector("#hits")
    assert page.locator("#hits li").count() == 0, "a search reads 32 MiB"
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
    keys.go("Enter", to="**/ui/runs?pipeline=orders&state=failed&*")
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
    page.evaluate(_SLOW_KEYS)
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        waiting.append(route)

    page.route("**/log?*&offset=*", hold)
    eventually(lambda: page.wait_for_timeout(10) or waiting, what="the page to ask for more")
    page.evaluate(_HIGHER)
    seen = page.locator("#log-end").inner_text()
    waiting.pop().continue_()
    keys.press("Home")  # the log grows before the browser has scrolled: it takes a fifth of a second
    page.unroute("**/log?*&offset=*")
    page.wait_for_selector(f"#log-end:not(:text-is('{seen}'))")
    place = "document.querySelector('[data-log]').scrollTop"
    eventually(lambda: page.evaluate(place) == 0, what="the first line to be in view")
    keys.press("End")
    for _ in range(2):  # the first growth may have begun before the key was handled
        seen = page.locator("#log-end").inner_text()
        page.wait_for_selector(f"#log-end:not(:text-is('{seen}'))")
        eventually(lambda: _below(page) < 40, what="the end to be in view")
    (gates / "hold-extract").unlink()
    flows.stop(run)


_HIGHER = """(() => {
  const log = document.querySelector("[data-log]"), part = document.createElement("pre");
  part.style.height = "300px";
  log.prepend(part);
  log.scrollTop = log.scrollHeight;
})()"""
"""A part above turns out to be higher than it was estimated, as happens when the browser draws it."""

_SLOW_KEYS = """document.querySelector("[data-log]").addEventListener("keydown", () => {
  const until = performance.now() + 200;
  while (performance.now() < until);
})"""


def _below(page: Any) -> float:
    """Pixels of the log below the visible part."""
    return float(
        page.evaluate(
            "(() => { const log = document.querySelector('[data-log]');"
            "return log.scrollHeight - log.scrollTop - log.clientHeight })()"
        )
    )


def test_user_logs_in_with_a_token_and_comes_to_the_page_that_was_asked_for(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = Keyboard(page)
    page.goto(f"{flows.url()}/ui/runs?state=failed")
    page.wait_for_url("**/ui/login?next=*")
    page.locator("#token:focus").wait_for()
    keys.type("nbs_wrong")
    keys.press("Enter")
    says(page, "[role=alert]", "not known")
    keys.fill("#token", flows.tokens["olga"])
    keys.go("Enter", to="**/ui/runs?state=failed")

    assert page.locator("select[name=state]").input_value() == "failed"
    says(page, "#logout", "olga, operator")


def test_user_logs_out_and_the_tab_shows_nothing_more(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = flows.open(page, "/runs", user="olga")
    keys.use("#logout button")
    page.wait_for_url("**/ui/login")
    page.goto(f"{flows.url()}/ui/runs")

    page.wait_for_url("**/ui/login?next=*")
    assert page.locator("#token").count() == 1


def test_session_is_good_at_every_scheduler(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    keys = flows.open(page, "/runs", user="vic")
    other = page.locator("#others a").first.inner_text()
    keys.use("#others a")

    says(page, ".by b", other)
    says(page, "#logout", "vic, viewer")


def test_viewer_is_refused_what_an_operator_may_do(flows: Flows, tabs: Tabs, held_run: str) -> None:
    page = tabs()
    flows.open(page, f"/runs/{held_run}", user="vic")
    says(page, "#refused", "needs the role operator: vic is viewer")
    assert page.locator("main form[method=post]").count() == 0

    refused = {
        place: page.request.post(f"{flows.url()}/ui/{place}", form=form).status
        for place, form in {
            f"runs/{held_run}/stop": {"reason": "I want to"},
            f"runs/{held_run}/pause": {},
            f"runs/{held_run}/rerun": {"scope": "all"},
            f"runs/{held_run}/tasks/release/approval": {"approved": "true", "reason": "good"},
            "pipelines/orders/start": {},
            "pipelines/orders/pause": {},
            "pipelines/orders/activate": {"digest": "0" * 64},
            "election/abdicate": {"reason": "I want to"},
        }.items()
    }
    assert set(refused.values()) == {403}, refused
    assert flows.cluster.run(held_run)["state"] == "running"


def test_operator_may_not_end_the_leadership(flows: Flows, tabs: Tabs) -> None:
    page = tabs()
    flows.open(page, "/election", user="olga")
    before = flows.cluster.leader()
    says(page, "#refused", "needs the role admin: olga is operator")
    refused = page.request.post(f"{flows.url()}/ui/election/abdicate", form={"reason": "I want to"})

    assert refused.status == 403
    assert "Not allowed" in refused.text()
    assert page.locator("#abdicate").count() == 0
    assert flows.cluster.leader()["epoch"] == before["epoch"]


def test_revoked_token_ends_the_stream_of_a_tab_and_leads_to_the_login(
    flows: Flows, tabs: Tabs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NIMBUS_TOKEN", flows.tokens["ada"])
    monkeypatch.setenv("NIMBUS_SERVER", flows.url())
    made = _nimbus("token", "create", "guest", "--role", "viewer")
    page = tabs()
    streams: list[Any] = []
    page.on("requestfinished", lambda request: streams.append(request) if "/events" in request.url else None)
    page.on("requestfailed", lambda request: streams.append(request) if "/events" in request.url else None)
    page.goto(f"{flows.url()}/ui/runs")
    keys = Keyboard(page)
    _known(flows, made)
    keys.fill("#token", made)
    keys.go("Enter", to="**/ui/runs")
    page.wait_for_selector("#live[data-live=yes]")

    _nimbus("token", "revoke", made.split("_")[1])

    page.wait_for_url("**/ui/login?next=%2Fui%2Fruns")
    assert streams, "it was ended, not left"


def _nimbus(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def _known(flows: Flows, token: str) -> None:
    """Wait until a scheduler has read a new token."""
    headers = {"Authorization": f"Bearer {token}"}
    until(
        "the token to be known",
        30,
        lambda: httpx.get(f"{flows.url()}/api/v1/whoami", headers=headers, timeout=60).is_success,
    )


@pytest.fixture
def _whole_again(flows: Flows) -> Iterator[None]:
    """Start the processes that a test has killed."""
    yield
    for number in sorted(flows.cluster.silent):
        flows.cluster.start_scheduler(number)
    flows.cluster.whole()


@pytest.mark.usefixtures("_whole_again")
@thorough
def test_every_tab_goes_on_after_the_leader_is_killed(
    flows: Flows, tabs: Tabs, held_run: str, gates: Path
) -> None:
    before = flows.cluster.leader()
    killed = number_of(before)
    elsewhere, follower, patient = tabs(), tabs(), tabs()
    flows.open(elsewhere, f"/runs/{held_run}", at=flows.standby())
    keys = flows.open(follower, f"/runs/{held_run}", at=killed)
    flows.open(patient, f"/runs/{held_run}", at=killed)
    says(elsewhere, "#frame", f"epoch {before['epoch']}")

    flows.cluster.kill_scheduler(killed)

    says(elsewhere, "#frame", f"epoch {before['epoch'] + 1}")
    assert before["id"] not in elsewhere.locator("#frame .succeeded b").inner_text()
    for tab in (follower, patient):
        says(tab, "#notice", "does not answer")
        assert tab.locator("#t-clean").count() == 1, "what was shown stays"
    keys.use("#notice a")
    says(follower, "#frame", f"epoch {before['epoch'] + 1}")
    scripts_run(follower)
    (gates / "hold-clean").unlink()
    for tab in (elsewhere, follower):
        says(tab, "#t-clean", "succeeded")
        says(tab, "#t-release .text", "approv")
    assert follower.url.endswith(f"/ui/runs/{held_run}")
    assert [len(task["attempts"]) for task in flows.cluster.run(held_run)["tasks"]] == [1, 1, 1, 0, 0]

    flows.cluster.start_scheduler(killed)

    patient.wait_for_selector("#notice", state="hidden")
    says(patient, "#t-clean", "succeeded")


@pytest.mark.usefixtures("_whole_again")
def test_admin_hands_the_leadership_over_and_the_same_tab_shows_the_next_leader(
    flows: Flows, tabs: Tabs
) -> None:
    before = flows.cluster.leader()
    page = tabs()
    keys = flows.open(page, "/", at=flows.standby())
    keys.go("g", "e", to="**/ui/election")
    keys.use("#abdicate summary")
    keys.fill("#abdicate [name=reason]", "its host is restarted")
    keys.press("Enter")

    says(page, "#frame", f"epoch {before['epoch'] + 1}")
    says(page, f"#s-{before['id']}", "its host is restarted")
    says(page, "#decision", "Accepted")


@pytest.mark.usefixtures("_whole_again")
def test_page_says_that_zookeeper_is_away_and_recovers(
    flows: Flows, tabs: Tabs, held_run: str, gates: Path
) -> None:
    page = tabs()
    flows.open(page, f"/runs/{held_run}")
    other = page.context.new_page()
    flows.cluster.stack.zookeeper.stop()
    other.goto(f"{flows.url()}/ui/runs")
    says(other, "#why", "ZooKeeper")
    says(page, "#notice", "cannot be reached since")
    assert page.locator("#t-clean").count() == 1, "what was shown stays"

    flows.cluster.stack.zookeeper.start()

    page.wait_for_selector("#notice", state="hidden")
    says(other, "h1", "Runs")
    (gates / "hold-clean").unlink()
    says(page, "#t-clean", "succeeded")


@pytest.mark.usefixtures("_whole_again")
def test_log_says_that_storage_is_away_and_comes_back(
    flows: Flows, tabs: Tabs, held_run: str, gates: Path
) -> None:
    page = tabs()
    flows.log_in(page)
    flows.cluster.stack.s3.stop()
    page.goto(f"{flows.url()}/ui/runs/{held_run}/tasks/clean")
    says(page, "main", "Storage")

    flows.cluster.stack.s3.start()

    says(page, "[data-log]", "tick")
