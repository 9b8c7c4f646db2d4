"""Measures Spark tasks of the demonstration, of an older commit and of this checkout, in turns.

`python -m tests.benchmark.flights --before REV --rounds 3` runs `python -m nimbus.demo`: the leader is killed
in the middle, and all checks are made. Times are from a task's order to its success, as it shows them, within
about 0.1 s. It needs the example's wheels (`make examples`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmark.blobsync.line_process import PROJECT
from tests.benchmark.engine.revision import Revision, checkout_of, interpreter, this_checkout

DELAYS = ("delays_by_carrier", "delays_by_hour", "delays_by_weather", "delay_histogram")
ALL = "enrich to the last of the four"
GOAL = 0.5
_CHANGE = re.compile(r"^ *(\d+\.\d) s +\d+/\d+ +(\S+) +(\w+) on \S+$", re.MULTILINE)
_PATIENCE_S = 900.0


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.flights", description=__doc__)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="nimbus-bench-flights-") as folder:
        place = Path(folder)
        with checkout_of(options.before, place) as before:
            revisions = (before, this_checkout())
            pythons = {each.label: interpreter(each, place / f"python-{each.label}") for each in revisions}
            seen: dict[str, list[dict[str, float]]] = {each.label: [] for each in revisions}
            for number in range(options.rounds):
                for each in revisions:
                    seen[each.label].append(_measured(each, pythons[each.label], place))
                    sys.stdout.write(
                        f"round {number + 1}, {each.label} ({each.commit}): {seen[each.label][-1]}\n"
                    )
                    sys.stdout.flush()
    return _print(seen)


def _measured(revision: Revision, python: str, place: Path) -> dict[str, float]:
    """Run the demonstration; return the time of each task in seconds."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["--dir", f"{place}/demo-{revision.label}", "--pipeline", f"{PROJECT}/examples/flights"]
    done = subprocess.run(
        [python, "-I", "-m", "nimbus.demo", *words],
        cwd=PROJECT,
        env={**os.environ, "PATH": path, "PYTHONSAFEPATH": "1"},  # else it imports from the working folder
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the demonstration of {revision.commit} failed:\n{done.stdout}{done.stderr}")
    return times_of(done.stdout)


def times_of(output: str) -> dict[str, float]:
    """The times that the demonstration's output shows."""
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    for at_s, task, state in _CHANGE.findall(output):
        began.setdefault(task, float(at_s))
        if state == "succeeded":
            ended[task] = float(at_s)
    times = {task: round(ended[task] - began[task], 1) for task in ("enrich", *DELAYS)}
    return {**times, ALL: round(max(ended[task] for task in DELAYS) - began["enrich"], 1)}


def _print(seen: dict[str, list[dict[str, float]]]) -> int:
    sys.stdout.write(f"{'medians, seconds':32}{'before':>8}{'after':>8}{'ratio':>8}\n")
    for name in ("enrich", *DELAYS, ALL):
        before, after = (median(times[name] for times in seen[label]) for label in ("before", "after"))
        sys.stdout.write(f"{name:32}{before:8.1f}{after:8.1f}{after / before:8.2f}\n")
    sys.stdout.write(f"goal: {GOAL}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
