"""Copies files from S3 to a disk with blobsync and other tools; docs/benchmarks.md explains the figures."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.benchmark.blobsync.lab import lab
from tests.benchmark.blobsync.runner import Runner
from tests.benchmark.blobsync.scale import SCALES
from tests.benchmark.blobsync.tools import find_tools
from tests.benchmark.blobsync.whole_run import CASES, whole_run


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.blobsync", description=__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=list(CASES), choices=CASES)
    add("--runs", type=int, default=5, help="counted runs of each contender in each case")
    add("--only", nargs="+", default=[], help="contenders, such as ours-host s5cmd-cp")
    add("--scale", choices=sorted(SCALES), default="full")
    add("--noise", type=float, default=3.0, help="percent of CPU time that other processes may use in a run")
    add("--patience", type=int, default=20, help="disturbed runs that are discarded before one is counted")
    add(
        "--data",
        type=Path,
        default=Path("build"),
        help="folder on the measured disk; S3 has its data there, too",
    )
    add("--json", type=Path, default=Path("build/bench-blobsync.json"))
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    options = _arguments(words)
    tools, skipped = find_tools()
    for name, tool in tools.items():
        _say(f"{name}: {tool.version}")
    for line in skipped:
        _say(line)
    with lab(options.data, SCALES[options.scale], tools, options.only) as made:
        runner = Runner(
            folder=made.bench.folder,
            server_pid=made.bench.server.pid,
            our_pids=made.pids,
            runs=options.runs,
            noise_limit=options.noise / 100,
            patience=options.patience,
            say=_say,
        )
        result = whole_run(made, runner, set(options.cases), _say)
    result["skipped"] = skipped
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    if options.scale != "full":
        _say("\nthe goals are for the full scale; this scale only shows that everything runs")
    _say(f"\nall figures: {options.json}")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all child processes are ended
    sys.exit(main())
