"""Lists in pages, over real HTTP."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import Abdicate
from nimbus.domain.ids import PipelineName, WorkerId
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.runs.run import RunState


def paged(api: httpx.Client, path: str, name: str, limit: int, **query: Any) -> list[dict[str, Any]]:
    """All rows of a list, page by page."""
    rows: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    while True:
        answer = api.get(path, params={"limit": limit, **query, **more}).raise_for_status().json()
        assert len(answer[name]) <= limit
        assert answer["at_least"] >= len(answer[name])
        rows += answer[name]
        if answer["next_cursor"] is None:
            return rows
        more = {"cursor": answer["next_cursor"]}


def _runs(world: Any, numbers: range, *, archived: bool) -> None:
    for number in numbers:
        at = world.clock.time + timedelta(seconds=number // 3)
        state = RunState.SUCCEEDED if number % 2 else RunState.FAILED
        run = world.new_run(f"r{number:02}", created_at=at, state=state, finished_at=at)
        if archived:
            world.history.store(run)
        else:
            world.cluster.put(run)


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_runs_are_paged_across_zookeeper_and_history(world: Any, api: httpx.Client, limit: int) -> None:
    _runs(world, range(10, 30), archived=True)
    _runs(world, range(15), archived=False)

    found = [run["id"] for run in paged(api, "/runs", "runs", limit)]

    places = sorted(range(30), key=lambda number: (-(number // 3), number))
    assert found == [f"r{number:02}" for number in places]


def test_pages_of_runs_miss_none_that_moves_to_history_between_them(world: Any, api: httpx.Client) -> None:
    _runs(world, range(12), archived=False)

    first = api.get("/runs", params={"limit": 5}).json()
    for number in range(12):
        run = world.reader.run(f"r{number:02}")
        world.history.store(run)
        world.cluster.set("runs", run.id, None)
    rest = paged(api, "/runs", "runs", 5, cursor=first["next_cursor"])

    ids = [run["id"] for run in [*first["runs"], *rest]]
    assert sorted(ids) == [f"r{number:02}" for number in range(12)]


def test_pages_of_runs_in_a_state_miss_none(world: Any, api: httpx.Client) -> None:
    _runs(world, range(20), archived=True)

    found = paged(api, "/runs", "runs", 3, state="failed")

    assert len(found) == 10
    assert {run["state"] for run in found} == {"failed"}


@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({"tag": "nightly"}, lambda n: n % 2 == 0),
        ({"owner": "finance"}, lambda n: n % 2 == 0),
        ({"owner": "-"}, lambda n: n % 2 == 1),
        ({"tag": "nightly", "owner": "-"}, lambda _: False),
        ({"pipeline": "p0", "tag": "nightly", "state": "failed"}, lambda n: n % 2 == 0),
        ({"logical_from": "2026-03-03", "logical_to": "2026-03-05"}, lambda n: 2 <= n % 10 < 5),
        ({"parameter": ["region=eu", "month=3"]}, lambda n: n % 10 == 3),
    ],
)
def test_runs_that_pass_a_filter_are_listed_from_both_places(
    world: Any, api: httpx.Client, query: dict[str, Any], fits: Any, limit: int
) -> None:
    first = world.cluster.world.pipelines[PipelineName("sums")]
    nightly = replace(first.profile, tags=("nightly",))
    world.cluster.put(replace(first, name=PipelineName("p0"), profile=nightly, owner="finance"))
    world.cluster.put(replace(first, name=PipelineName("p1"), owner=None))
    for number in range(40):
        at = world.clock.time + timedelta(seconds=number)
        run = world.new_run(
            f"r{number:02}",
            pipeline=PipelineName(f"p{number % 2}"),
            created_at=at,
            finished_at=at,
            state=RunState.FAILED,
            logical_date=datetime(2026, 3, 1 + number % 10, 12, tzinfo=UTC),
            parameters={"month": number % 10, "region": "eu"},
        )
        (world.history.store if number < 30 else world.cluster.put)(run)

    found = paged(api, "/runs", "runs", limit, **query)

    assert [run["id"] for run in found] == [f"r{n:02}" for n in reversed(range(40)) if fits(n)]


def test_pipelines_that_pass_a_filter_are_listed(world: Any, api: httpx.Client) -> None:
    first = world.cluster.world.pipelines[PipelineName("sums")]
    nightly = replace(first.profile, tags=("nightly",))
    paused = replace(first, name=PipelineName("p0"), profile=nightly, owner="finance")
    world.cluster.put(replace(paused, state=PipelineState.PAUSED))

    for query in ({"tag": "nightly"}, {"owner": "finance"}, {"state": "paused"}):
        assert [one["name"] for one in paged(api, "/pipelines", "pipelines", 10, **query)] == ["p0"]
    assert api.get("/pipelines", params={"tag": "Nightly"}).status_code == 422
    assert api.get("/runs", params={"parameter": "month"}).status_code == 422


@pytest.mark.parametrize("state", [None, "succeeded", "failed"])
def test_runs_of_some_days_are_listed_from_both_places(
    world: Any, api: httpx.Client, state: str | None
) -> None:
    for day in range(10):
        at = world.clock.time + timedelta(days=day)
        ended = RunState.SUCCEEDED if day % 3 else RunState.FAILED
        run = world.new_run(f"r{day}", created_at=at, state=ended, finished_at=at)
        if day < 6:
            world.history.store(run)
        else:
            world.cluster.put(run)
    first, last = world.clock.time + timedelta(days=3), world.clock.time + timedelta(days=7)
    filters = {} if state is None else {"state": state}

    found = paged(
        api, "/runs", "runs", 2, **filters, **{"from": f"{first:%Y-%m-%d}", "to": f"{last:%Y-%m-%d}"}
    )
    exact = paged(api, "/runs", "runs", 2, **filters, **{"from": first.isoformat(), "to": last.isoformat()})
    later = paged(api, "/runs", "runs", 2, **{"from": (last + timedelta(microseconds=1)).isoformat()})

    wanted = [day for day in (7, 6, 5, 4, 3) if state in (None, "succeeded" if day % 3 else "failed")]
    assert [run["id"] for run in found] == [run["id"] for run in exact] == [f"r{day}" for day in wanted]
    assert [run["id"] for run in later] == ["r9", "r8"]


@pytest.mark.parametrize("query", ["from=tomorrow", "to=2026-13-01", "from=2026-01-01T00:00:00"])
def test_days_that_are_none_are_refused(api: httpx.Client, query: str) -> None:
    assert api.get(f"/runs?{query}").status_code == 422


def test_commands_are_paged(world: Any, api: httpx.Client) -> None:
    world.deciding = False
    for _ in range(7):
        world.queue.submit(Abdicate(reason="x"), submitted_by="me")

    found = paged(api, "/commands", "commands", 3)

    assert sorted(row["command_id"] for row in found) == [queued.id for queued in world.reader.commands()]


def test_other_lists_are_paged_and_whole_without_a_limit(world: Any, api: httpx.Client) -> None:
    world.cluster.put(*(replace(world.worker, id=WorkerId(f"v{number}")) for number in range(4)))
    world.cluster.put(*(replace(world.record, name=PipelineName(f"p{number}")) for number in range(4)))
    world.cluster.put(ClusterSettings(pools={f"pool{number}": 1 for number in range(5)}))
    world.failed("r1")

    lists = {
        "/participants": "participants",
        "/workers": "workers",
        "/pipelines": "pipelines",
        "/pools": "pools",
        "/runs/r1/timeline": "events",
        "/backfills": "backfills",
        "/alerts": "alerts",
    }
    for path, name in lists.items():
        whole = api.get(path).json()
        assert (whole["next_cursor"], whole["at_least"]) == (None, len(whole[name]))
        assert paged(api, path, name, 2) == whole[name]


@pytest.mark.parametrize("path", ["/runs", "/workers", "/commands"])
@pytest.mark.parametrize("key", ["[" * 749, r'[1, "\ud800"]'])
def test_cursor_that_cannot_be_read_is_refused(world: Any, api: httpx.Client, path: str, key: str) -> None:
    cursor = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")

    answer = api.get(path, params={"cursor": cursor, "limit": 1})

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_cursor")


@pytest.mark.parametrize("cursor", ["nonsense", "W10", "WyJhIiwgImIiXQ", "WzEsIDJd", "e30", "!"])
@pytest.mark.parametrize("path", ["/runs", "/workers", "/commands"])
def test_cursors_of_something_else_are_refused(world: Any, api: httpx.Client, path: str, cursor: str) -> None:
    answer = api.get(path, params={"cursor": cursor, "limit": 1})

    # Some are valid as a place in another list: then the answer has no rows, or is a refusal.
    assert (answer.status_code, answer.json().get("code")) in [
        (200, None),
        (404, "unknown_cursor"),
        (422, "invalid_request"),
    ]
    if cursor in ("nonsense", "e30"):
        assert answer.status_code == 404
