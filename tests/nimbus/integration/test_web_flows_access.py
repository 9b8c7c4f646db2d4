"""Permissions in pages, in a real browser with a real cluster that requires tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from tests.nimbus.browser import Keyboard, Tabs, says
from tests.nimbus.web_flows import Flows


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
    from tests.nimbus.chaos.cluster import until

    headers = {"Authorization": f"Bearer {token}"}
    until(
        "the token to be known",
        30,
        lambda: httpx.get(f"{flows.url()}/api/v1/whoami", headers=headers, timeout=10).is_success,
    )
