"""Pictures of the pages, in a browser without a window.

Names of this machine and of its user are replaced on the page before a picture is taken.
"""

from __future__ import annotations

import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LARGEST_BYTES = 150_000
"""Limit of a picture in the documents."""
_WIDE, _HIGH, _NARROW = 1440, 900, 390
_HIDE_HOST = """([host, shown]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data;
    if (text.includes(host)) texts.currentNode.data = text.replaceAll(host, shown);
  }
}"""


@dataclass(frozen=True)
class Shown:
    """A picture in the documents."""

    name: str
    scheme: str
    height: int
    width: int = 1120


def pages(names: Mapping[str, str]) -> dict[str, str]:
    """The fifteen pages: paths below `/ui`, by name.

    Args:
        names: `failed`, the run that has failed; `new` and `old`, digests of releases.
    """
    run, shop = f"/runs/{names['failed']}", "/pipelines/shop_daily"
    return {
        "home": "/",
        "pipelines": "/pipelines",
        "pipeline": shop,
        "durations": f"{shop}?view=durations",
        "runs": "/runs",
        "run": run,
        "gantt": f"{run}?view=gantt",
        "wide": "/runs/wide_scan-now",
        "task": f"{run}/tasks/stock_check",
        "log": f"{run}/tasks/stock_check/log",
        "backfill": "/backfills/shop-october",
        "dataset": "/datasets/orders_clean",
        "lineage": "/lineage",
        "release": f"{shop}/releases/{names['new']}?against={names['old']}",
        "election": "/election",
    }


def take(server: str, places: Mapping[str, str], folder: Path) -> None:
    """Take pictures of all pages in light, dark and at 390 pixels, into a folder."""
    with _browser() as browser:
        for name, place in places.items():
            for kind, scheme, width in (
                ("light", "light", _WIDE),
                ("dark", "dark", _WIDE),
                ("narrow", "light", _NARROW),
            ):
                shown = Shown(name, scheme, _HIGH, width)
                _take_one(browser, f"{server}/ui{place}", shown, folder / f"{name}-{kind}.png")


def take_for_docs(server: str, places: Mapping[str, str], shown: Iterable[Shown], folder: Path) -> None:
    """Take the pictures of the documents. SystemExit if one is too large."""
    with _browser() as browser:
        for one in shown:
            file = folder / f"{one.name}.png"
            _take_one(browser, f"{server}/ui{places[one.name]}", one, file)
            size = file.stat().st_size
            if size > LARGEST_BYTES:
                raise SystemExit(f"{file.name} has {size} bytes, more than {LARGEST_BYTES}")
            sys.stdout.write(f"{file.relative_to(ROOT)}: {size} bytes\n")


class _browser:  # noqa: N801 - used as a function
    def __enter__(self) -> Any:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell"), args=["--no-sandbox"]
        )
        return self._browser

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()


def _take_one(browser: Any, url: str, shown: Shown, file: Path) -> None:
    """One picture, without the names of this machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    tab = browser.new_page(
        viewport={"width": shown.width, "height": shown.height},
        color_scheme=shown.scheme,
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    tab.goto(url)
    tab.wait_for_load_state("load")
    tab.wait_for_timeout(300)
    tab.evaluate(_HIDE_HOST, [socket.gethostname(), "host-a"])
    text = tab.locator("body").inner_text()
    for private in (socket.gethostname(), str(ROOT), str(Path.home()), tempfile.gettempdir()):
        if re.search(rf"(?<![\w-]){re.escape(private)}(?![\w-])", text):
            raise SystemExit(f"{file.name} would show {private}")
    tab.screenshot(path=file)
    tab.close()
