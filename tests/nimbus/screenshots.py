"""Takes the pictures of the README: `make screenshots`. A browser shows a demonstration that is kept.

Names of this machine and of its user are replaced on the page before a picture is taken.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from nimbus.client.servers import VARIABLE

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs/images"
LARGEST_BYTES = 150_000
_RUNS = 16
_FAILING = (5, 11)
_REPLACE_HOST = """([host, shown]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    texts.currentNode.data = texts.currentNode.data.replaceAll(`${host},`, `${shown},`);
  }
}"""


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nimbus-") as scratch, _demonstration(Path(scratch)) as run:
        server, _, run_id = run.partition("/ui/runs/")
        _orders(server, Path(scratch))
        _take(server, run_id)


@contextmanager
def _demonstration(scratch: Path) -> Iterator[str]:
    """A running demonstration. Yields the address of its run's page."""
    words = [sys.executable, "-m", "nimbus.cli.main", "demo", "--keep", "--dir", str(scratch / "demo")]
    words += ["--pipeline", "examples/flights"]
    environment = {**os.environ, "LOGNAME": "ada", "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            sys.stdout.write(line)
            if found := re.match(r"the run: +(\S+)", line):
                yield found[1]
                return
        raise SystemExit("the demonstration has failed")
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(60)


def _orders(server: str, scratch: Path) -> None:
    """A second pipeline with some runs, two of which fail, for the grid."""
    config, gates = scratch / "demo/scheduler-1.yaml", scratch / "gates"
    gates.mkdir()
    (gates / "fail-check").touch()
    words = [
        "pipeline",
        "publish",
        "tests/nimbus/web_pipelines/orders",
        "--activate",
        "--config",
        str(config),
    ]
    environment = {**os.environ, VARIABLE: server, "LOGNAME": "ada"}
    subprocess.run([sys.executable, "-m", "nimbus.cli.main", *words], env=environment, cwd=ROOT, check=True)
    with httpx.Client(base_url=f"{server}/api/v1", timeout=30, headers={"X-Nimbus-User": "ada"}) as api:
        for number in range(_RUNS):
            run = f"orders-{number + 1:02d}"
            given = {"gates": str(gates)} if number in _FAILING else {}
            api.post("/runs?wait=20", json={"pipeline": "orders", "run_id": run, "parameters": given})
            _until(api, run, "check", "failed" if given else "succeeded")
            if not given and number < _RUNS - 1:
                _until(api, run, "clean", "succeeded")
                said = {"approved": True, "reason": "figures checked"}
                api.post(f"/runs/{run}/tasks/release/approval?wait=20", json=said).raise_for_status()
                _until(api, run, "load", "succeeded")


def _until(api: httpx.Client, run: str, task: str, state: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        tasks = {one["name"]: one for one in api.get(f"/runs/{run}").json().get("tasks", [])}
        if task in tasks and tasks[task]["state"] == state:
            return
        time.sleep(0.1)
    raise SystemExit(f"{run} {task} is not {state}")


def _take(server: str, run_id: str) -> None:
    from playwright.sync_api import sync_playwright

    places = {
        "cluster": ("/", "light", 560),
        "run": (f"/runs/{run_id}", "light", 760),
        "gantt": (f"/runs/{run_id}?view=gantt", "dark", 680),
        "task": (f"/runs/{run_id}/tasks/enrich", "light", 680),
        "election": ("/election", "light", 470),
        "pipeline": ("/pipelines/orders", "light", 740),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell"), args=["--no-sandbox"]
        )
        for name, (place, scheme, height) in places.items():
            tab = browser.new_page(viewport={"width": 1120, "height": height}, color_scheme=scheme)
            tab.goto(f"{server}/ui{place}")
            tab.wait_for_selector("#live[data-live=yes]")
            _take_one(tab, PICTURES / f"{name}.png")
            tab.close()
        browser.close()


def _take_one(tab: Any, file: Path) -> None:
    tab.evaluate(_REPLACE_HOST, [socket.gethostname(), "host-a"])
    shown = tab.locator("body").inner_text()
    for private in (socket.gethostname(), str(ROOT), str(Path.home()), tempfile.gettempdir()):
        if re.search(rf"(?<![\w-]){re.escape(private)}(?![\w-])", shown):
            raise SystemExit(f"{file.name} would show {private}")
    tab.screenshot(path=file)
    size = file.stat().st_size
    if size > LARGEST_BYTES:
        raise SystemExit(f"{file.name} has {size} bytes, more than {LARGEST_BYTES}")
    sys.stdout.write(f"{file.relative_to(ROOT)}: {size} bytes\n")


if __name__ == "__main__":
    main()
