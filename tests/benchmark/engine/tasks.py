"""Measure 2: durable no-op tasks per second, and the gap in a chain, compared with the floor of the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.benchmark.engine.lab import ROOT, Lab, must
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.shapes import attempts_of, described
from tests.benchmark.leader.figures import percentile, summary

MEASURE = "tasks"
FAST_WORKERS, FAST_SLOTS = 10, 40
_GOAL_PER_S, _GOAL_FLOOR, _GOAL_GAP_MS = 300.0, 1 / 3, 8.0
_FLOOR_BATCHES = (5, 20)
_GOAL_BATCH = 5
_KINDS = {"runs": "run", "assignments": "order", "claim": "claim", "end": "end"}


def register_fast(lab: Lab) -> None:
    """Add workers that end their attempts at once."""
    lab.workers.ask("register", prefix="fast", count=FAST_WORKERS, slots=FAST_SLOTS, holding=False)


def tasks(lab: Lab, scale: Scale, live: int) -> Iterator[Row]:
    """Measure all rows, with `live` runs in the background. The fast workers must be registered."""
    beside = f"{live:,} live runs"
    since = lab.zxid()
    small = _speed(lab, scale, "small", scale.small_runs, beside)
    sizes = _record_sizes(lab, since)
    floors = {batch: _floor(lab, sizes, scale.floor_tasks, batch) for batch in (0, *_FLOOR_BATCHES)}
    yield from (small, _share(small, floors[_GOAL_BATCH]))
    yield from (_floor_row(batch, value, sizes, beside) for batch, value in floors.items())
    yield _gap(lab, scale, beside)
    fan_out = _speed(lab, scale, "fan", scale.fan_out, beside)
    yield from (fan_out, _share(fan_out, floors[_GOAL_BATCH]))


def _share(row: Row, floor_per_s: float) -> Row:
    return Row(
        measure=MEASURE,
        words=f"{row.words} / floor in batches of {_GOAL_BATCH}",
        unit="x",
        value=None if row.value is None else row.value / floor_per_s,
        goal=_GOAL_FLOOR,
        least=True,
    )


def _speed(lab: Lab, scale: Scale, name: str, size: tuple[int, int], beside: str) -> Row:
    runs, count = size
    what = described(name, "wide", count)
    if refused := lab.publish([what], scale.patience_s):
        return _speed_row(what, beside, None, f"refused: {refused[0]}")
    expected = runs * attempts_of(what)
    ids = [(what["name"], f"{what['name']}-{number}") for number in range(runs)]
    lab.workers.ask("forget")
    cpu = lab.cpu_s()
    began = lab.operator.ask("start", runs=ids)
    tally = lab.workers.ask("await_closed", count=expected, within_s=scale.patience_s)
    used = {name: value - cpu[name] for name, value in lab.cpu_s().items()}
    must(lab.operator.ask("answers", within_s=scale.patience_s))
    took_s = (tally["last_closed_ns"] - began) / 1e9
    if tally["closed"] < expected:
        note = f"only {tally['closed']:,} of {expected:,} tasks within {scale.patience_s:.0f} s"
        return _speed_row(what, beside, None, note)
    _check(lab, [run for _, run in ids[:: max(1, len(ids) // 10)]], scale)
    busy = ", ".join(f"{name} {value / took_s:.0%}" for name, value in used.items())
    note = f"{runs:,} runs; CPU: {busy}; workers busy {tally['busy_s'] / took_s:.0%}"
    return _speed_row(what, beside, expected / took_s, note)


def _speed_row(what: dict[str, Any], beside: str, per_s: float | None, note: str) -> Row:
    return Row(
        measure=MEASURE,
        words=f"runs of {what['tasks']:,} tasks, {beside}",
        unit="tasks/s",
        value=per_s,
        goal=_GOAL_PER_S,
        least=True,
        note=note,
    )


def _check(lab: Lab, runs: Sequence[str], scale: Scale) -> None:
    """Check that the leader reports the counted runs as succeeded."""
    until = time.monotonic() + scale.patience_s
    for run in runs:
        while (state := lab.operator.ask("state", run=run)) != "succeeded":
            if state in ("failed", "stopped") or time.monotonic() > until:
                raise RuntimeError(f"run {run} is {state}")
            time.sleep(0.05)


def _record_sizes(lab: Lab, since: int) -> dict[str, int]:
    """Bytes of each record of a task's life, p50, read from the transaction log."""
    found: dict[str, list[float]] = {kind: [] for kind in _KINDS.values()}
    for entry in lab.log(since):
        for write in entry.writes:
            parts = write.path.removeprefix(f"{ROOT}/").split("/")
            kind = _KINDS.get(parts[-1] if parts[0] == "attempts" else parts[0])
            if kind is not None:
                found[kind].append(write.size_bytes)
    return {kind: int(percentile(values, 0.5)) for kind, values in found.items()}


def _floor(lab: Lab, sizes: dict[str, int], count: int, batch: int) -> float:
    per_s: float = lab.workers.ask("floor", sizes=sizes, tasks=count if batch else count // 5, batch=batch)
    return per_s


def _floor_row(batch: int, per_s: float, sizes: dict[str, int], beside: str) -> Row:
    how = f"in batches of {batch}" if batch else "one by one"
    note = ", ".join(f"{kind} {size:,} B" for kind, size in sizes.items())
    return Row(
        measure=MEASURE, words=f"floor of the store, {how}, {beside}", unit="tasks/s", value=per_s, note=note
    )


def _gap(lab: Lab, scale: Scale, beside: str) -> Row:
    what = described("gaps", "chain", scale.chain)
    must(lab.publish([what], scale.patience_s))
    lab.workers.ask("forget")
    lab.operator.ask("start", runs=[("gaps", "gaps-1")])
    lab.workers.ask("await_closed", count=scale.chain, within_s=scale.patience_s)
    must(lab.operator.ask("answers", within_s=scale.patience_s))
    _check(lab, ["gaps-1"], scale)
    found = summary(lab.workers.ask("gaps_ms", run="gaps-1"))
    note = f"p90 {found['p90']:.3g}, p99 {found['p99']:.3g}"
    return Row(
        measure=MEASURE, words=f"gap in a chain of {scale.chain}, p50, {beside}", unit="ms",
        value=found["p50"], goal=_GOAL_GAP_MS, note=note,
    )  # fmt: skip
