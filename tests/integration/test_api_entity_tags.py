"""Conditional reads, over real HTTP."""

from __future__ import annotations

from typing import Any

import httpx


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
