"""Compares our hand-over with Curator's and kazoo's. docs/benchmarks.md explains the figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.benchmark.leader.bench_server import bench_server
from tests.benchmark.leader.contenders import contenders
from tests.benchmark.leader.handover_run import Plan
from tests.benchmark.leader.whole_run import profiled, whole_run

_STAGES = ("handover", "calls", "wire")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.leader", description=__doc__)
    add = parser.add_argument
    add("--sizes", type=int, nargs="+", default=[3, 30, 300], help="numbers of participants, multiples of 3")
    add("--rounds", type=int, default=300, help="counted hand-overs for each size and contender")
    add("--warm-up", type=int, default=50, help="rounds before them at each size, not counted")
    add("--first-warm-up", type=int, default=1000, help="quick rounds at the start, until Java has compiled")
    add("--block", type=int, default=25, help="rounds of one contender before the next one's turn")
    add("--pause-ms", type=float, default=20.0, help="pause between rounds")
    add("--idle-s", type=float, default=30.0, help="how long waiting participants are measured")
    add("--write-pairs", type=int, default=1000, help="writes of each kind, to measure the fence")
    add("--only", nargs="+", default=["ours", "latch", "curator", "kazoo"], help="contenders")
    add("--stages", nargs="+", default=list(_STAGES), choices=_STAGES)
    add("--data", type=Path, default=Path("build"), help="folder for the server's data, such as /dev/shm")
    add("--json", type=Path, default=Path("build/bench-leader.json"))
    add("--profile-handover", action="store_true", help="only show where our time goes")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    options = _arguments(words)
    plan = Plan(
        sizes=options.sizes,
        rounds=options.rounds,
        warm_up=options.warm_up,
        first_warm_up=options.first_warm_up,
        block=options.block,
        pause_s=options.pause_ms / 1000,
        idle_s=options.idle_s,
        write_pairs=options.write_pairs,
    )
    with bench_server(options.data) as bench:
        _say(bench.described())
        found, skipped = contenders(options.only, bench.folder)
        for line in skipped:
            _say(line)
        if options.profile_handover:
            _say(profiled(bench, found, plan))
            return 0
        result = whole_run(bench, found, plan, set(options.stages), _say)
    result["skipped"] = skipped
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    _say(f"\nall figures: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
