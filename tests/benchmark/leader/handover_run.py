"""The whole comparison: all contenders on one server, in turns, for each number of participants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient

from tests.benchmark.leader.contenders import HOSTS, Contender
from tests.benchmark.leader.handover import Queue

Report = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        sizes: Numbers of participants, in rising order, each a multiple of the number of processes.
        rounds: Counted hand-overs for each size and contender.
        warm_up: Rounds before them, which are not counted.
        first_warm_up: Rounds without pauses at the start, also not counted. Java compiles code that runs
            often; a cold JVM would make Curator slower, and our figures look better.
        block: Rounds of one contender before the next one's turn, so that noise of the machine affects all.
        pause_s: Pause between rounds.
        idle_s: How long waiting participants are measured.
        write_pairs: Writes of each kind, to measure the fence.
    """

    sizes: Sequence[int]
    rounds: int
    warm_up: int
    first_warm_up: int
    block: int
    pause_s: float
    idle_s: float
    write_pairs: int

    def __post_init__(self) -> None:
        if any(size % HOSTS or size < HOSTS for size in self.sizes) or list(self.sizes) != sorted(self.sizes):
            raise ValueError(f"sizes {self.sizes} must rise and be multiples of {HOSTS}")


@contextmanager
def queues(found: Sequence[Contender], zookeeper: str, folder: Path, pause_s: float) -> Iterator[list[Queue]]:
    """Start the host processes of all contenders. The queues are empty."""
    with ExitStack() as stack:
        observer = KazooClient(zookeeper)
        observer.start(timeout=15)
        stack.callback(observer.close)
        stack.callback(observer.stop)
        made = []
        for contender in found:
            group = contender.start([zookeeper] * HOSTS, folder)
            stack.callback(group.close)
            made.append(Queue(contender, group, observer, pause_s))
        yield made


def measure(made: Sequence[Queue], plan: Plan, report: Report) -> dict[int, dict[str, list[float]]]:
    """Milliseconds of each hand-over, by size and contender."""
    samples: dict[int, dict[str, list[float]]] = {}
    for size in plan.sizes:
        for queue in made:
            queue.grow(size)
            if not samples:
                queue.warm_up(plan.first_warm_up)
        samples[size] = _one_size(made, plan, report, size)
    return samples


def _one_size(made: Sequence[Queue], plan: Plan, report: Report, size: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {queue.contender.name: [] for queue in made}
    began = time.monotonic()
    for queue in made:
        for _ in range(plan.warm_up):
            queue.round()
    done = 0
    while done < plan.rounds:
        block = min(plan.block, plan.rounds - done)
        for queue in made:
            took[queue.contender.name] += [queue.round().took_ms for _ in range(block)]
        done += block
    report(f"{size} participants: {plan.rounds} rounds each in {time.monotonic() - began:.0f} s")
    return took
