"""What a tab shows while parts of a real cluster are killed: the user stays in it and continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nimbus.browser import Tabs, says, scripts_run
from tests.nimbus.chaos.cluster import number_of
from tests.nimbus.web_flows import Flows


@pytest.fixture(autouse=True)
def _whole_again(flows: Flows) -> Iterator[None]:
    """Start the processes that a test has killed."""
    yield
    for number in sorted(flows.cluster.silent):
        flows.cluster.start_scheduler(number)
    flows.cluster.whole()


def test_leader_is_killed_and_a_tab_at_another_scheduler_goes_on(
    flows: Flows, tabs: Tabs, held_run: str, gates: Path
) -> None:
    before = flows.cluster.leader()
    page = tabs()
    flows.open(page, f"/runs/{held_run}", at=flows.standby())
    says(page, "#frame", f"epoch {before['epoch']}")
    attempt = flows.cluster.run(held_run)["tasks"]

    flows.cluster.kill_scheduler(number_of(before))

    says(page, "#frame", f"epoch {before['epoch'] + 1}")
    assert before["id"] not in page.locator("#frame .succeeded b").inner_text()
    (gates / "hold-clean").unlink()
    says(page, "#t-clean", "succeeded")
    says(page, "#t-release .text", "approv")
    assert [len(task["attempts"]) for task in attempt] == [1, 1, 1, 0, 0]
    assert [len(task["attempts"]) for task in flows.cluster.run(held_run)["tasks"]] == [1, 1, 1, 0, 0]


def test_tab_at_the_leader_that_is_killed_leads_on_to_another_scheduler(
    flows: Flows, tabs: Tabs, held_run: str, gates: Path
) -> None:
    before = flows.cluster.leader()
    page = tabs()
    keys = flows.open(page, f"/runs/{held_run}", at=number_of(before))
    flows.cluster.kill_scheduler(number_of(before))
    says(page, "#notice", "does not answer")
    assert page.locator("#t-clean").count() == 1, "what was shown stays"

    keys.use("#notice a")
    says(page, "#frame", f"epoch {before['epoch'] + 1}")
    scripts_run(page)
    (gates / "hold-clean").unlink()

    says(page, "#t-clean", "succeeded")
    assert page.url.endswith(f"/ui/runs/{held_run}")


def test_tab_at_a_scheduler_that_is_started_again_goes_on_by_itself(
    flows: Flows, tabs: Tabs, held_run: str, gates: Path
) -> None:
    number = flows.standby()
    page = tabs()
    flows.open(page, f"/runs/{held_run}", at=number)
    flows.cluster.kill_scheduler(number)
    page.wait_for_selector("#notice:not([hidden])")
    flows.cluster.start_scheduler(number)

    page.wait_for_selector("#notice", state="hidden")
    (gates / "hold-clean").unlink()
    says(page, "#t-clean", "succeeded")


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
