"""Conditional reads and writes, over real HTTP.

The leader's part: `tests/nimbus/unit/test_engine_conditions.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import AccessRole, Token
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.ids import BackfillId
from nimbus.domain.pipelines.backfill import Backfill, BackfillRequest
from tests.nimbus.integration.conftest import T0


def test_a_read_is_answered_with_304_while_nothing_has_changed(world: Any, api: httpx.Client) -> None:
    first = api.get("/runs")
    tag = first.headers["etag"]

    again = api.get("/runs", headers={"If-None-Match": f'W/"other", {tag}'})
    world.cluster.put(world.new_run("r1"))
    changed = api.get("/runs", headers={"If-None-Match": tag})

    assert tag.startswith('W/"')
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "x-nimbus-version" in again.headers
    assert (changed.status_code, changed.json()["runs"][0]["id"]) == (200, "r1")
    assert changed.headers["etag"] != tag


def test_only_json_that_was_read_has_a_tag(world: Any, api: httpx.Client) -> None:
    world.opened(world.new_run("r1"), "extract")

    for answer in (
        api.get("/runs/none"),
        api.get("/runs/r1/tasks/extract/log"),
        api.post("/runs", json={"pipeline": "sums"}),
    ):
        assert "etag" not in answer.headers
    assert api.head("/runs").headers["etag"] == api.get("/runs").headers["etag"]


def prepared(world: Any) -> dict[str, str]:
    """Creates one record of each kind that has a revision. Returns the path and the revision of each."""
    backfill = Backfill(
        id=BackfillId("b1"),
        pipeline=world.record.name,
        release=world.record.published,
        schedule=None,
        request=BackfillRequest(first=T0, last=T0),
        created_at=T0,
    )
    token = Token(id="0" * 12, name="ada", role=AccessRole.VIEWER, sha256="0" * 64, created_at=T0)
    world.cluster.put(
        backfill, ClusterSettings(pools={"db": 3}, variables={"day": "1"}, tokens={token.id: token})
    )
    return {
        "/pipelines/sums": revisions.of_pipeline(world.record),
        "/backfills/b1": revisions.of_backfill(backfill),
        "/pools/db": revisions.of_pool("db", 3),
        "/variables/day": revisions.of_variable("day", "1"),
        f"/tokens/{token.id}": revisions.of_token(token),
    }


def test_what_has_one_record_has_a_strong_tag_that_begins_with_its_revision(
    world: Any, api: httpx.Client
) -> None:
    for path, revision in prepared(world).items():
        answer = api.get(path)
        tag = answer.headers["etag"]

        assert re.fullmatch(rf'"{revision}-[0-9a-f]{{32}}"', tag), path
        assert api.head(path).headers["etag"] == tag
        assert api.get(path, headers={"If-None-Match": tag}).status_code == 304
        assert api.get(path, headers={"If-None-Match": f"W/{tag}"}).status_code == 304
        assert api.get(path, headers={"If-None-Match": f'"{revision}-0"'}).status_code == 200


def test_a_tag_tells_of_what_is_shown_beside_the_record_but_its_revision_does_not(
    world: Any, api: httpx.Client
) -> None:
    before = api.get("/pipelines/sums").headers["etag"]
    world.cluster.put(replace(world.record, schedule_position=T0))
    fired = api.get("/pipelines/sums").headers["etag"]
    world.cluster.put(replace(world.record, owner="ann"))
    owned = api.get("/pipelines/sums").headers["etag"]

    revision = before.partition("-")[0]
    assert (fired != before, fired.partition("-")[0]) == (True, revision)
    assert owned.partition("-")[0] != revision


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/pipelines/sums/releases", {"digest": "a" * 64}),
        ("POST", "/pipelines/sums/activate", None),
        ("POST", "/pipelines/sums/pause", None),
        ("POST", "/pipelines/sums/rewind", {"reason": "clock"}),
        ("DELETE", "/pipelines/sums", None),
        ("PUT", "/pipelines/sums/owner", {"owner": "ann"}),
        ("POST", "/backfills/b1/pause", None),
        ("PUT", "/pools/db", {"size": 4}),
        ("DELETE", "/pools/db", None),
        ("PUT", "/variables/day", {"value": "2"}),
        ("DELETE", "/variables/day", None),
        ("PUT", f"/tokens/{'0' * 12}", {"name": "bob", "role": "viewer", "sha256": "1" * 64}),
        ("DELETE", f"/tokens/{'0' * 12}", None),
    ],
)
def test_the_condition_of_a_write_travels_in_its_command(
    world: Any, api: httpx.Client, method: str, path: str, body: Any
) -> None:
    found = next(known for known in prepared(world) if path.startswith(known))
    tag = api.get(found).headers["etag"]
    world.deciding = False

    answer = api.request(method, path, json=body, headers={"If-Match": f'"0-1", {tag},3, W/"2"'})

    (queued,) = world.reader.commands()
    assert answer.status_code == 202
    assert queued.if_match == ("0", prepared(world)[found], "3")


def test_a_write_that_the_leader_refuses_as_changed_is_a_412(world: Any, api: httpx.Client) -> None:
    world.refuse = ("changed", "it was changed")

    answers = [
        api.post(
            "/pipelines/sums/pause",
            params={"wait": 1},
            headers={"If-Match": '"0"', "Idempotency-Key": "k"},
        )
        for _ in range(2)
    ]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(412, "changed")] * 2


@pytest.mark.parametrize(
    ("path", "tag", "expected"),
    [
        ("/pipelines/sums/pause", 'W/"0"', (412, "changed")),
        ("/pipelines/sums/pause", "*", (200, None)),
        ("/pipelines/none/pause", "*", (404, "unknown_pipeline")),
        ("/pipelines/sums/pause", '"*"', (412, "changed")),
        ("/pipelines/sums/pause", 'W/"0", *', (412, "changed")),
        ("/pipelines/sums/pause", '""', (412, "changed")),
        ("/pipelines/sums/pause", "", (422, "invalid_request")),
        ("/pipelines/sums/pause", '"0\x7f"', (422, "invalid_request")),
        ("/runs/r1/pause", "*", (409, "no_revision")),
    ],
)
def test_conditions_that_can_be_judged_at_once(
    world: Any, api: httpx.Client, path: str, tag: str, expected: tuple[int, str | None]
) -> None:
    world.cluster.put(world.new_run("r1"))

    answer = api.post(path, params={"wait": 1}, headers={"If-Match": tag})

    assert (answer.status_code, answer.json().get("code")) == expected
    assert len(world.queue.outcomes()) == (expected[0] == 200)


def test_a_key_with_another_condition_is_another_request(api: httpx.Client) -> None:
    key = {"Idempotency-Key": "k"}
    first = api.post("/pipelines/sums/pause", headers={**key, "If-Match": '"0"'})
    again = api.post("/pipelines/sums/pause", headers={**key, "If-Match": '"0"'})
    other = [api.post("/pipelines/sums/pause", headers={**key, **more}) for more in ({}, {"If-Match": "*"})]

    assert first.json()["command_id"] == again.json()["command_id"]
    assert [answer.status_code for answer in other] == [422, 422]


@pytest.mark.parametrize("path", ["/pools/none", "/variables/none", f"/tokens/{'1' * 12}"])
def test_a_setting_that_is_not_there_is_a_404(api: httpx.Client, path: str) -> None:
    assert api.get(path).status_code == 404
