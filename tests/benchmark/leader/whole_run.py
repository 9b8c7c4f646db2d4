"""All stages of `make bench-leader`, one after the other, on one server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.benchmark.leader.bench_server import BenchServer
from tests.benchmark.leader.contenders import HOSTS, Contender
from tests.benchmark.leader.figures import machine, summary
from tests.benchmark.leader.handover_run import Plan, measure, queues
from tests.benchmark.leader.idle_cost import look, per_participant
from tests.benchmark.leader.profile_handover import profile
from tests.benchmark.leader.table import call_table, handover_table, idle_table, wire_table
from tests.benchmark.leader.wire_cost import wire_cost

Report = Callable[[str], None]
WIRE_PARTICIPANTS = 30


def whole_run(
    bench: BenchServer, found: Sequence[Contender], plan: Plan, stages: set[str], say: Report
) -> dict[str, Any]:
    """Measure, print tables, and return all figures.

    Args:
        stages: Some of `handover`, `calls`, `wire`.
    """
    labels = {contender.name: contender.label for contender in found}
    result: dict[str, Any] = {"machine": machine(), "server": bench.described(), "labels": labels}
    if "handover" in stages:
        result |= _handover(bench, found, plan, labels, say)
    if "calls" in stages and "ours" in labels:
        result["calls"] = _calls(bench, found, plan, say)
    if "wire" in stages:
        result["wire"] = costs = wire_cost(found, bench, WIRE_PARTICIPANTS, rounds=20)
        say("\n" + wire_table(costs, labels, WIRE_PARTICIPANTS))
    result["machine"]["load_after"] = os.getloadavg()[0]
    return result


def _handover(
    bench: BenchServer, found: Sequence[Contender], plan: Plan, labels: dict[str, str], say: Report
) -> dict[str, Any]:
    with queues(found, bench.server.hosts, bench.folder, plan.pause_s) as made:
        empty = look(made, plan.idle_s)
        samples = measure(made, plan, say)
        full = look(made, plan.idle_s)
        idle = per_participant(made, empty, full)
    say("\n" + handover_table(samples, labels))
    if plan.idle_s > 0:
        say("\n" + idle_table(idle, labels))
    return {
        "handover_ms": {
            size: {name: summary(values) for name, values in by_contender.items()}
            for size, by_contender in samples.items()
        },
        "handover_samples_ms": samples,
        "idle": idle,
    }


def _calls(bench: BenchServer, found: Sequence[Contender], plan: Plan, say: Report) -> dict[str, float]:
    ours = [contender for contender in found if contender.name == "ours"]
    with queues(ours, bench.server.hosts, bench.folder, plan.pause_s) as made:
        queue = made[0]
        queue.grow(HOSTS)
        queue.group.host_of(0).send(f"cost 0 {plan.write_pairs}")
        cost: dict[str, float] = json.loads(queue.group.expect({"json"}, 120)[1])
    say("\n" + call_table(cost))
    return cost


def profiled(bench: BenchServer, found: Sequence[Contender], plan: Plan) -> str:
    """A table of where the time of our hand-over goes."""
    ours = [replace(contender, traced=True) for contender in found if contender.name == "ours"]
    with queues(ours, bench.server.hosts, bench.folder, plan.pause_s) as made:
        return profile(made[0], plan)
