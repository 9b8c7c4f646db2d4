"""What a tab shows while parts of a real cluster are killed: the user stays in it and continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nimbus.browser import Tabs, says, scripts_run
from tests.nimbus.chaos.cluster import number_of
from tests.nimbus.web_flows import Flows
from tests.thorough import thorough


@pytest.fixture(autouse=True)
def _whole_again(flows: Flows) -> Iterator[None]:
    """Start the processes that a test has killed."""
    yield
    for number in sorted(flows.cluster.silent):
        flows.cluster.start_scheduler(number)
    flows.cluster.whole()


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
