"""`python -m tests.benchmark.leader`: see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.benchmark.leader.bench_server import bench_server
from tests.benchmark.leader.contenders import contenders
from tests.benchmark.leader.figures import machine, summary
from tests.benchmark.leader.handover_run import Plan, measure, queues
from tests.benchmark.leader.profile_handover import profile
from tests.benchmark.leader.table import handover_table


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.leader", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 30, 300], help="participants")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=50)
    parser.add_argument(
        "--block", type=int, default=25, help="rounds of one contender before the next's turn"
    )
    parser.add_argument("--pause-ms", type=float, default=20.0, help="between rounds")
    parser.add_argument("--only", nargs="+", default=["ours", "curator", "kazoo"])
    parser.add_argument("--data", type=Path, default=Path("build"), help="where the server's data go")
    parser.add_argument("--json", type=Path, default=Path("build/bench-leader.json"))
    parser.add_argument("--profile-handover", action="store_true", help="where our time goes; nothing else")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    plan = Plan(
        sizes=options.sizes,
        rounds=options.rounds,
        warm_up=options.warm_up,
        block=options.block,
        pause_s=options.pause_ms / 1000,
    )
    result: dict[str, object] = {"machine": machine()}
    with bench_server(options.data) as bench:
        say(bench.described())
        if options.profile_handover:
            ours = replace(contenders(["ours"], bench.folder)[0][0], traced=True)
            with queues([ours], bench.server.hosts, bench.folder, plan.pause_s) as made:
                say(profile(made[0], plan))
            return 0
        found, skipped = contenders(options.only, bench.folder)
        for line in skipped:
            say(line)
        labels = {contender.name: contender.label for contender in found}
        with queues(found, bench.server.hosts, bench.folder, plan.pause_s) as made:
            samples = measure(made, plan, say)
        say(handover_table(samples, labels))
        result |= {
            "server": bench.described(),
            "labels": labels,
            "handover_ms": {
                size: {name: summary(values) for name, values in found.items()}
                for size, found in samples.items()
            },
            "handover_samples_ms": samples,
        }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
