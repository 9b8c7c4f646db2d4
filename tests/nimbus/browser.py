"""A real browser for the tests of pages: a keyboard, and tabs that fail a test on violations of the policy.

A plug-in of `tests/conftest.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

import psutil
import pytest

PATIENCE_MS = 60_000
"""Time limit for one thing to appear. It is long, because only a failing test waits for all of it."""
_MAX_TABS = 400
_BROWSER = shutil.which("chromium-headless-shell")
_MISSING = [
    *(["the package playwright: run make setup"] if find_spec("playwright") is None else []),
    *(["chromium-headless-shell: apt-get install chromium-headless-shell"] if _BROWSER is None else []),
]
_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => reportViolation(
  `${location.pathname} ${event.violatedDirective} ${event.sourceFile}:${event.lineNumber} ${event.sample}`));
"""

Tabs = Callable[..., Any]
"""Opens a new context of the browser, with options of playwright, and a tab in it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium. Without one the tests are skipped, and fail in CI."""
    if _MISSING:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not here: {', '.join(_MISSING)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=_BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def _browser_stays(request: pytest.FixtureRequest, long_lived: Any, _leaves_nothing: None) -> Iterator[None]:
    """A browser starts processes of its own when it needs them; they end with it."""
    yield
    if "browser" not in request.fixturenames:
        return
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name().startswith(("chrom", "node")):
                long_lived.pids.add(child.pid)


@pytest.fixture
def faults() -> list[str]:
    """Violations of the pages' policy and errors of scripts, in every document of every tab."""
    return []


@pytest.fixture
def tabs(browser: Any, faults: list[str]) -> Iterator[Tabs]:
    """Opens tabs, which must end without faults. Each call has its own context and cookies."""
    with _contexts(browser, faults) as opened:
        yield opened
    assert faults == []


@pytest.fixture
def page(tabs: Tabs) -> Any:
    """One tab."""
    return tabs()


@contextmanager
def _contexts(browser: Any, faults: list[str]) -> Iterator[Tabs]:
    contexts: list[Any] = []

    def reported(violation: str) -> None:  # playwright does not take the list's own method
        faults.append(violation)

    def opened(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("weberror", lambda error: faults.append(str(error.error)))
        context.expose_function("reportViolation", reported)
        context.add_init_script(_REPORT_VIOLATIONS)
        return context.new_page()

    try:
        yield opened
        for context in contexts:
            for tab in context.pages:
                tab.evaluate("1")  # all earlier reports have arrived then
    finally:
        for context in contexts:
            context.close()


def scripts_run(page: Any) -> None:
    """Wait until the scripts of a page have begun."""
    page.wait_for_selector("#live:not(:empty)")


def says(page: Any, selector: str, text: str) -> None:
    """Wait for a text. It does not use a function, because the policy of the pages refuses code from text."""
    page.locator(selector, has_text=text).first.wait_for(state="attached")


def says_when_it_looks(page: Any, selector: str, text: str, look_s: float) -> None:
    """Wait for a text that a page finds when it looks again, each `look_s` of its own clock.

    This advances the clock instead of waiting. Call `page.clock.install()` before the page is opened.
    """
    until = time.monotonic() + PATIENCE_MS / 1000
    found = page.locator(selector, has_text=text).first
    while not found.count():
        if time.monotonic() > until:
            pytest.fail(f"{selector} does not say {text!r}: {page.locator(selector).all_inner_texts()}")
        page.clock.fast_forward(round(look_s * 1000))
        page.wait_for_timeout(200)


def axe_finds(page: Any) -> str:
    """The violations that axe finds on a page in light and in dark colours; empty: none.

    The colours change only the contrast, so only this is examined in the second ones.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    schemes: list[tuple[Any, dict[str, Any]]] = [
        ("light", {"resultTypes": ["violations"]}),
        ("dark", {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}),
    ]
    reports = []
    page.evaluate(AXE_SCRIPT)
    for scheme, options in schemes:
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("(options) => axe.run(options).then((all) => all.violations)", options)
        if found:
            reports.append(f"{scheme}: {json.dumps(found, indent=1)}")
    return "\n".join(reports)


class Keyboard:
    """A user without a pointer, who can press keys and read the page, and cannot click."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def press(self, *keys: str) -> None:
        """Press keys one after the other, by their names, such as `Enter`."""
        for key in keys:
            self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type a text at the focus. It replaces the selection."""
        self._page.keyboard.type(text)

    def go(self, *keys: str, to: str) -> None:
        """Press keys that open another page, then wait for its address (a pattern) and for its scripts."""
        self.press(*keys)
        self._page.wait_for_url(to)
        scripts_run(self._page)

    def focus(self, selector: str) -> None:
        """Press Tab until the focus is on the element of a selector. AssertionError if it never is."""
        self._page.wait_for_selector(selector)
        for _ in range(_MAX_TABS):
            if self._page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not reach {selector} on {self._page.url}")

    def use(self, selector: str) -> None:
        """Reach a link or button with Tab, and press Enter."""
        self.focus(selector)
        self.press("Enter")

    def fill(self, selector: str, text: str) -> None:
        """Reach a field with Tab, and replace its text."""
        self.focus(selector)
        self.press("Control+a")
        self.type(text)
