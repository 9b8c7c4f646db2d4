"""Twelve questions of somebody on call, each answered by one look, at most two clicks from home.

A look is what a window of 1440 by 900 pixels shows without scrolling: texts that are hidden, cut off or
outside of it do not count, nor do links in such places. The cluster is that of the pictures; if NIMBUS_SHOP
is the address of a scheduler of `python -m tests.nimbus.pictures --keep`, it is that one.
"""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest

from tests.nimbus.browser import Tabs, axe_finds, scripts_run
from tests.nimbus.chaos.cluster import Cluster
from tests.nimbus.pictures.__main__ import places_in
from tests.nimbus.pictures.cluster import filled
from tests.thorough import thorough

pytestmark = thorough

_MAX_CLICKS = 2
_PATIENCE_S = 8
_VISIBLE = """() => {
  const shown = [], range = new Range();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const drawn = {opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true};
  const inside = (element) => {
    let box = {left: 0, top: 0, right: innerWidth, bottom: innerHeight};
    for (let at = element; at && at !== document.documentElement; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (at === document.body || (style.overflowX === "visible" && style.overflowY === "visible")) continue;
      const own = at.getBoundingClientRect();
      box = {left: Math.max(box.left, own.left), top: Math.max(box.top, own.top),
             right: Math.min(box.right, own.right), bottom: Math.min(box.bottom, own.bottom)};
    }
    return box;
  };
  while (walk.nextNode()) {
    const node = walk.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, title, template, option, noscript")) continue;
    if (!element.checkVisibility(drawn)) continue;
    range.selectNodeContents(node);
    const box = inside(element);
    const seen = [...range.getClientRects()].some((own) => own.width > 2 && own.height > 2 &&
      own.left < box.right - 2 && own.right > box.left + 2 &&
      own.top < box.bottom - 2 && own.bottom > box.top + 2);
    if (seen) shown.push(node.data.replace(/\\s+/g, " "));
  }
  return shown.join(" ").replace(/\\s+/g, " ");
}"""


@dataclass(frozen=True)
class Question:
    """What is asked, what is clicked from home on, and what is then seen."""

    asked: str
    clicks: tuple[tuple[str, str], ...]
    """Role and accessible name (a pattern) of each thing that is clicked; `summary` has no role."""
    seen: tuple[str, ...]
    """Patterns of visible texts."""


_FAILED_RUN = ("link", r"shop_daily failed")
"""In the list of what needs attention."""
_SHOP = ("link", r"^shop_daily$")

QUESTIONS = (
    Question("what failed, and why", (), ("shop_daily", "stock_check", "4 products have a negative stock")),
    Question(
        "did it fail before",
        (_FAILED_RUN,),
        (r"failed \d+ of the last \d+", r"first on \d{4}-\d\d-\d\d"),
    ),
    Question(
        "which line",
        (_FAILED_RUN, ("link", "stock_check")),
        (r"tasks/stock_check\.py", r"line 16|16 ", r"raise ValueError"),
    ),
    Question(
        "slower than last week",
        (_SHOP, ("link", "^Durations$")),
        (r"[Mm]edian", r"\d{4}-\d\d-\d\d|\d\d-\d\d", r"\d+ s"),
    ),
    Question("which dates are missing", (_SHOP,), (r"3 dates without a run",)),
    Question("what runs next hour", (), ("stock_sync", r"\d\d:10")),
    Question(
        "what waits for what",
        (("link", "^Runs$"), ("link", "load-customers")),
        (r"pool warehouse",),
    ),
    Question(
        "what depends on what",
        (("link", "^Datasets$"), ("link", "^Graph$|[Ll]ineage")),
        ("price_feed", "shop_daily", "orders_clean", "stock_forecast", "forecast"),
    ),
    Question("who leads, and who is next", (), (r"scheduler-\d", r"[Ll]ead", r"next", r"ready")),
    Question(
        "run what failed again",
        (_FAILED_RUN, ("summary", "[Rr]un again|[Rr]erun")),
        ("what failed or did not run", "3 of 9 tasks", "A new run"),
    ),
    Question(
        "what did this release change",
        (_FAILED_RUN, ("link", r"^(Release )?[0-9a-f]{12}")),
        (r"archive", r"tasks/read\.py", r"changed", r"added", r"ada"),
    ),
    Question(
        "what did this run read and write",
        (_FAILED_RUN, ("link", "^(Data|Reads and writes|Inputs and outputs)$")),
        (r"[Rr]ead", "prices", r"[Pp]ublished", "orders_clean"),
    ),
)


@dataclass
class Shop:
    """The cluster of the pictures, as a reader of its pages sees it."""

    url: str
    places: dict[str, str]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[Shop]:
    """The filled cluster."""
    if url := os.environ.get("NIMBUS_SHOP"):
        with httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
            yield Shop(url, places_in(lambda path: client.get(path).json()))
        return
    with filled(tmp_path_factory.mktemp("shop")) as cluster:
        stack = cluster.stack
        long_lived.processes += [stack.zookeeper, stack.s3, *stack.schedulers]
        _live_on(cluster, long_lived)
        yield Shop(stack.addresses.schedulers[0], places_in(cluster.ask))


def _live_on(cluster: Cluster, long_lived: Any) -> None:
    """Held tasks and helpers of workers end with the cluster, not with a test."""
    long_lived.pids |= {left.pid for left in cluster.stack.leftovers()}
    for scheduler in cluster.stack.schedulers:
        long_lived.pids |= {child.pid for child in psutil.Process(scheduler.pid).children(recursive=True)}


class Look:
    """One tab, which starts at home."""

    def __init__(self, page: Any, shop: Shop) -> None:
        self.page = page
        self.page.goto(f"{shop.url}/ui/")
        scripts_run(page)

    def sees(self) -> str:
        """The visible text."""
        found: str = self.page.evaluate(_VISIBLE)
        return found

    def click(self, role: str, name: str) -> None:
        """Click the first such thing that the window shows."""
        size = self.page.viewport_size
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            pattern = re.compile(name)
            named = self.page.get_by_role(role, name=pattern)
            if role == "summary":
                named = self.page.locator("summary", has_text=pattern)
            for one in named.all():
                box = one.bounding_box() if one.is_visible() else None
                if box and box["y"] >= 0 and box["y"] + box["height"] <= size["height"]:
                    one.click()
                    self.page.wait_for_load_state("load")
                    return
            self.page.wait_for_timeout(200)
        pytest.fail(f"no {role} {name!r} is visible at {self.page.url}: {self.sees()}")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.asked.replace(" ", "-"))
def test_question_is_answered_by_one_look_at_most_two_clicks_from_home(
    shop: Shop, tabs: Tabs, question: Question
) -> None:
    assert len(question.clicks) <= _MAX_CLICKS
    look = Look(tabs(viewport={"width": 1440, "height": 900}), shop)
    for click in question.clicks:
        look.click(*click)

    until = time.monotonic() + _PATIENCE_S
    while (missing := [one for one in question.seen if not re.search(one, look.sees())]) and (
        time.monotonic() < until
    ):
        look.page.wait_for_timeout(200)
    assert not missing, f"{look.page.url} shows {look.sees()}"


def test_a_text_outside_of_the_window_is_not_seen(shop: Shop, tabs: Tabs) -> None:
    look = Look(tabs(viewport={"width": 1440, "height": 900}), shop)
    look.page.evaluate(
        """() => {
          for (const [text, styles] of [["below it", {position: "fixed", top: "901px"}],
              ["cut off", {position: "fixed", top: "9px", width: "1px", height: "1px", overflow: "hidden"}],
              ["no ink", {position: "fixed", top: "9px", opacity: "0"}],
              ["in sight", {position: "fixed", top: "9px"}]]) {
            const made = document.createElement("div");
            made.textContent = text;
            Object.assign(made.style, styles);
            document.body.append(made);
          }
        }"""
    )
    seen = look.sees()

    assert "in sight" in seen
    assert not any(text in seen for text in ("below it", "cut off", "no ink"))


PAGES = (
    "home", "pipelines", "pipeline", "durations", "runs", "run", "gantt", "wide", "task", "log", "backfill",
    "dataset", "lineage", "release", "election",
)  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_page_of_the_pictures_has_no_violation_and_fits(shop: Shop, tabs: Tabs, name: str) -> None:
    wide, narrow = tabs(viewport={"width": 1440, "height": 900}), tabs(viewport={"width": 390, "height": 844})
    for page in (wide, narrow):
        page.goto(f"{shop.url}/ui{shop.places[name]}")
        page.wait_for_selector("[data-followed]" if name == "log" else "#live:not(:empty)", state="attached")

        assert axe_finds(page) == ""
    over = narrow.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    sent = len(gzip.compress(httpx.get(f"{shop.url}/ui{shop.places[name]}", timeout=60).content))

    assert over <= 0
    assert sent <= (30_000 if name == "home" else 60_000)
