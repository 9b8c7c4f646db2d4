"""Measures the cost of drivers in clusters: following many of them, and submitting one."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmark.clusters.follow import Followed, followed
from tests.benchmark.clusters.submit import Submitted, submitted


def main() -> int:
    """Run the benchmark. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.clusters", description=__doc__)
    parser.add_argument("--drivers", type=int, default=500)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long each number of drivers is followed"
    )
    parser.add_argument("--submissions", type=int, default=5)
    parser.add_argument("--only", choices=("follow", "submit"))
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="nimbus-bench-clusters-"))
    found: dict[str, object] = {}
    try:
        if options.only != "submit":
            counts = (0, options.drivers)
            found["follow"] = _follow([followed(place / f"of-{n}", n, options.seconds) for n in counts])
        if options.only != "follow":
            found["submit"] = _submit(submitted(place / "submit", options.submissions))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    _say(json.dumps(found))
    return 0


def _follow(rows: list[Followed]) -> list[dict[str, float]]:
    _say("| drivers followed | of a core | threads | requests to the cluster, 1/s |")
    for row in rows:
        _say(f"| {row.drivers} | {row.core:.2%} | {row.threads} | {row.looks_a_second:.1f} |")
    return [{"drivers": row.drivers, "core": row.core, "threads": row.threads} for row in rows]


def _submit(rows: Submitted) -> dict[str, list[float]]:
    by_hand, ours = statistics.median(rows.by_hand_s), statistics.median(rows.ours_s)
    _say("| from the request to the first line of the program | median | all |")
    for name, median, all_s in (("by hand", by_hand, rows.by_hand_s), ("a task", ours, rows.ours_s)):
        _say(f"| {name} | {median:.2f} s | {', '.join(f'{one:.2f}' for one in all_s)} |")
    _say(f"added: {ours - by_hand:.2f} s")
    return {"by_hand_s": rows.by_hand_s, "ours_s": rows.ours_s}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main())
