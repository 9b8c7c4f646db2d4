"""Listings of the S3 adapter that a real server seldom gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from blobsync import ObjectInfo, S3Config, S3ObjectStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def entry(key: str, modified: datetime) -> dict[str, Any]:
    return {"Key": f"x/{key}", "Size": 3, "LastModified": modified}


@pytest.mark.parametrize("older_first", [True, False])
def test_key_that_is_listed_twice_counts_once_as_the_younger_says(
    monkeypatch: pytest.MonkeyPatch, older_first: bool
) -> None:
    twice = [entry("b", NOON - HOUR), entry("b", NOON)]
    first, second = twice if older_first else reversed(twice)
    pages = [{"Contents": [entry("a", NOON), first]}, {}, {"Contents": [second, entry("c", NOON)]}]

    assert listed(monkeypatch, pages) == [ObjectInfo(key, 3, NOON) for key in ("a", "b", "c")]


def test_first_page_without_keys_does_not_end_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed(monkeypatch, [{}, {"Contents": [entry("a", NOON)]}]) == [ObjectInfo("a", 3, NOON)]


def listed(monkeypatch: pytest.MonkeyPatch, pages: list[dict[str, Any]]) -> list[ObjectInfo]:
    """What the adapter lists where the server gives these pages."""
    client = SimpleNamespace(
        list_objects_v2=lambda **_: {**pages[0], "IsTruncated": True},
        get_paginator=lambda _: SimpleNamespace(paginate=lambda **_: iter(pages[1:])),
    )
    monkeypatch.setattr(S3ObjectStore, "_client", property(lambda _: client))
    store = S3ObjectStore(S3Config(endpoint_url="http://127.0.0.1:9000", bucket="b", prefix="x/"))
    return list(store.list(""))
