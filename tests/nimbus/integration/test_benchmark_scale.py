"""The benchmark of pages at large sizes, at small ones."""

from __future__ import annotations

import subprocess
import sys

from tests.thorough import thorough


@thorough
def test_benchmark_of_sizes_asks_for_every_page() -> None:
    counts = ("--pipelines=20", "--tasks=40", "--daily=20", "--days=5", "--latency-ms=1")
    command = [sys.executable, "-m", "tests.benchmark.scale", "pipelines", "wide", "history", *counts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)

    assert "100 runs written" in done.stdout
    assert done.stdout.count("/api/v1/runs?state=failed") == 2
    assert "/ui/runs/fan-1/tasks/join" in done.stdout
