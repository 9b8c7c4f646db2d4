"""Shows where the time of our hand-over goes, step by step: `--profile-handover`."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from tests.benchmark.leader.figures import percentile
from tests.benchmark.leader.handover import Queue
from tests.benchmark.leader.handover_run import Plan
from tests.benchmark.leader.table import aligned

_SEEN_IN = 0.5
"""Steps that occur in fewer rounds are left out, such as a periodic proof of the leader."""


@dataclass(frozen=True)
class Step:
    """One note of one process in one round."""

    at_ms: float
    who: str
    words: str


def profile(queue: Queue, plan: Plan) -> str:
    """Run rounds with notes. Returns a table of the medians. Hosts must be started with `traced`."""
    queue.grow(plan.sizes[0])
    queue.warm_up(plan.warm_up)
    seen: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    took = []
    for _ in range(plan.rounds):
        steps, led_ms = _one(queue, plan.pause_s)
        took.append(led_ms)
        numbers: Counter[tuple[str, str]] = Counter()
        for step in steps:
            numbers[step.who, step.words] += 1
            seen[step.who, step.words, numbers[step.who, step.words]].append(step.at_ms)
    heading = f"p50 {percentile(took, 0.5):.2f} ms, p99 {percentile(took, 0.99):.2f} ms, with notes taken\n"
    return heading + _table(seen, plan.rounds)


def _one(queue: Queue, pause_s: float) -> tuple[list[Step], float]:
    old, new = queue.order[0], queue.order[1]
    _notes(queue, old), _notes(queue, new)
    done = queue.hand_over()
    time.sleep(pause_s)
    steps = [
        Step((at_ns - done.called_ns) / 1e6, who, words)
        for who, number in (("old", old), ("new", new))
        for at_ns, words in _notes(queue, number)
        if done.called_ns <= at_ns <= done.led_ns
    ]
    steps.append(Step(0.0, "old", "close() called"))
    steps.append(Step((done.returned_ns - done.called_ns) / 1e6, "old", "close() returned"))
    steps.append(Step(done.took_ms, "new", "ELECTED: confirmed, fenced, guarded"))
    queue.join(old)
    time.sleep(pause_s)
    return steps, done.took_ms


def _notes(queue: Queue, participant: int) -> list[tuple[int, str]]:
    queue.group.host_of(participant).send("trace")
    notes: list[tuple[int, str]] = json.loads(queue.group.expect({"json"})[1])
    return notes


def _table(seen: dict[tuple[str, str, int], list[float]], rounds: int) -> str:
    lines = sorted(
        (percentile(at, 0.5), percentile(at, 0.9), who, words, len(at))
        for (who, words, _number), at in seen.items()
        if len(at) >= _SEEN_IN * rounds
    )
    rows = [["who  what  [thread]", "at p50 ms", "since line above", "at p90", "rounds"]]
    before = 0.0
    for p50, p90, who, words, count in lines:
        rows.append([f"{who}  {words}", f"{p50:.3f}", f"{p50 - before:+.3f}", f"{p90:.3f}", str(count)])
        before = p50
    return aligned(rows)
