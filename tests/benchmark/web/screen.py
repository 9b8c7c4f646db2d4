"""Measures the time from a change in ZooKeeper until a real browser shows it."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import Any

from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.writes import PutRun
from nimbus.ports import LeaderStore
from tests.benchmark.leader.figures import percentile
from tests.benchmark.leader.table import aligned
from tests.nimbus.leader_writes import commit

GOAL_MS = 200.0
CHANGES = 40

SEEN = """() => {
  window.seen = [];
  const told = () => document.querySelector("#counts").textContent;
  let last = told();
  new MutationObserver(() => {
    if (told() !== last) { last = told(); requestAnimationFrame(() => window.seen.push(Date.now())); }
  }).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true });
}"""


def _changed(run: Run) -> Run:
    """The run with another state of its last task (not run or waiting), which changes the counts shown."""
    last = list(run.tasks.values())[-1]
    other = TaskState.NOT_RUN if last.state is TaskState.WAITING else TaskState.WAITING
    return replace(run, tasks=run.tasks.replaced([replace(last, state=other)]))


def _took(page: Any, store: LeaderStore, run: Run) -> list[float]:
    page.evaluate(SEEN)
    took = []
    for number in range(CHANGES):
        after = _changed(run)
        began = time.time() * 1000
        commit(store, [PutRun(after, run)])
        run = after
        deadline = time.monotonic() + 30
        while len(page.evaluate("window.seen")) <= number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the page did not show change {number} within 30 s")
            time.sleep(0.02)
        took.append(page.evaluate("window.seen")[number] - began)
        time.sleep(0.3)
    return took


def measure(url: str, store: LeaderStore, runs: dict[int, Run]) -> str:
    """Measure all sizes. Returns a table with a row for each size, or why there is none."""
    browser = shutil.which("chromium-headless-shell")
    if browser is None:
        return "change to screen: not measured, chromium-headless-shell is missing"
    from playwright.sync_api import sync_playwright

    rows = [["change to screen", "p50, ms", "p90, ms", "max, ms", "<= 200 ms"]]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for size, run in runs.items():
            page = chromium.new_page()
            page.goto(f"{url}/ui/runs/{run.id}")
            page.wait_for_selector("#live:not(:empty)")
            took = _took(page, store, run)
            page.close()
            p50, p90 = percentile(took, 0.5), percentile(took, 0.9)
            verdict = "met" if p50 <= GOAL_MS else "MISSED"
            rows.append([f"{size} tasks", f"{p50:.0f}", f"{p90:.0f}", f"{max(took):.0f}", verdict])
        chromium.close()
    return aligned(rows)
