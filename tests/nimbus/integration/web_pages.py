"""A cluster with runs of every kind and its pages over real HTTP, for the tests of pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from nimbus.domain.ids import AttemptId, TaskName
from nimbus.domain.pipelines.backfill import BackfillState
from tests.nimbus.integration.web_samples import (
    HOSTILE,
    backfill,
    catalog,
    commands,
    datasets,
    fan,
    finished,
    hostile,
    layered,
    part_done,
    releases,
    terms,
)

LARGEST_PAGE = 60_000


class Parsed(HTMLParser):
    """The parts of a page that tests check."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.faults: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "id" in given:
            self.ids[given["id"] or ""] += 1
        self.faults += [f"<{tag} {name}>" for name in given if name == "style" or name.startswith("on")]
        self.links += [given[name] or "" for name in ("href", "src", "action") if name in given]
        if tag == "script":
            self.scripts.append(given.get("src") or "inline")
        if tag in ("style", "iframe", "img", "object", "base"):
            self.faults.append(f"<{tag}>")
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.faults.append("inline script")


@pytest.fixture
def web(api_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of the pages. A form waits a second, not five, for a leader that does not decide."""
    monkeypatch.setattr("nimbus.web.actions._WAIT_S", 1)
    with httpx.Client(base_url=api_url, timeout=60) as client:
        yield client


@pytest.fixture
def sample(world: Any) -> Any:
    """A cluster with runs of every kind."""
    finished(world, "sums-old", layered(8), hours_ago=20)
    part_done(world, "sums-live", layered(8), parameters={"day": "2026-03-01"})
    part_done(world, "sums-fan", fan(14))
    hostile(world)
    catalog(world)
    daily = world.reader.pipeline("daily")
    backfill(world, daily, "fills")
    backfill(world, daily, "held", state=BackfillState.PAUSED, reason=HOSTILE, created_by=HOSTILE)
    backfill(world, daily, "over", state=BackfillState.CANCELLED, reason="no longer wanted")
    datasets(world)
    terms(world)
    world.failed("sums-failed")
    for number in (1, 2):
        attempt = AttemptId(world.reader.run("sums-failed").id, TaskName("extract"), number)
        world.logs.append(attempt, 0, b"".join(b"line %d\n" % n for n in range(5_000)))
    world.deciding = False
    return world


@pytest.fixture
def audited(sample: Any) -> Any:
    """The same, with waiting and decided commands."""
    commands(sample)
    return sample


@pytest.fixture
def published(sample: Any) -> Any:
    """The same, with releases in storage and on the disk."""
    sample.published = releases(sample)
    return sample
