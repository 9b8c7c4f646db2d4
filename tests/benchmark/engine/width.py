"""Measure 9: one wide run with a join over all its tasks."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmark.engine.lab import Lab, must
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.shapes import described
from tests.benchmark.engine.takeover import Goals, takeover
from tests.benchmark.leader.clock import now_ns
from tests.benchmark.leader.figures import percentile

MEASURE = "width"
_ACCEPTED_S, _TURN_MS, _MEMORY_MIB = 2.0, 5.0, 200.0
_WORKERS = 100


def width(lab: Lab, scale: Scale) -> Iterator[Row]:
    """Start the run, hold half of its tasks, kill the leader, and let the run end."""
    what = described("width", "join", scale.wide + 1)
    of = f"a run of {scale.wide:,} tasks and a join"
    must(lab.publish([what], scale.patience_s))
    lab.engine.ask("turns_ms")
    began = now_ns()
    lab.operator.ask("start", runs=[("width", "width-1")])
    must(lab.operator.ask("answers", within_s=scale.patience_s))
    yield Row(
        measure=MEASURE, words=f"{of}: accepted", unit="s", value=(now_ns() - began) / 1e9, goal=_ACCEPTED_S
    )
    workers = min(_WORKERS, scale.wide // 2)
    slots = scale.wide // 2 // workers
    half = workers * slots
    lab.workers.ask("register", prefix="hold", count=workers, slots=slots, holding=True)
    lab.workers.ask("await_held", count=half, within_s=scale.patience_s)
    yield _turns(lab, f"{of}: a turn, until half of the tasks run")
    yield from takeover(lab, scale, half, 1, Goals(1.0, 1.0), MEASURE)
    lab.engine.ask("turns_ms")
    lab.workers.ask("register", prefix="fast", count=_WORKERS, slots=10, holding=False)
    lab.workers.ask("release_held")
    lab.await_state("width-1", "succeeded", scale.patience_s)
    yield _turns(lab, f"{of}: a turn, until it ends")
    yield Row(
        measure=MEASURE, words=f"{of}: memory of the leader", unit="MiB",
        value=lab.engine.ask("usage")["pss_mib"], goal=_MEMORY_MIB,
    )  # fmt: skip


def _turns(lab: Lab, words: str) -> Row:
    found = sorted(lab.engine.ask("turns_ms"))
    return Row(
        measure=MEASURE, words=words, unit="ms", value=found[-1], goal=_TURN_MS,
        note=f"CPU; {len(found)} turns, p50 {percentile(found, 0.5):.3g}, p99 {percentile(found, 0.99):.3g}",
    )  # fmt: skip
