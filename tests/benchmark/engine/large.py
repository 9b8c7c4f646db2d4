"""Measure 6: large runs with failures and retries end, and their writes do not grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.benchmark.engine.lab import ROOT, Lab
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.shapes import attempts_of, described
from tests.benchmark.engine.store import LARGEST_KIB
from tests.benchmark.leader.figures import percentile

MEASURE = "large"
_FAILS, _EVERY = 2, 10
"""Each tenth task fails twice."""


def large(lab: Lab, scale: Scale) -> Iterator[Row]:
    """Runs of several shapes, one after the other."""
    shapes = [(shape, count) for count in scale.large for shape in ("wide", "dag")]
    for shape, count in [*shapes, ("chain", scale.large_chain)]:
        yield from _one(
            lab, scale, described(f"large-{shape}-{count}", shape, count, fails=_FAILS, every=_EVERY)
        )


def _one(lab: Lab, scale: Scale, what: dict[str, Any]) -> Iterator[Row]:
    words = f"{what['shape']}, {what['tasks']:,} tasks"
    refused, run = lab.publish([what], scale.patience_s), f"{what['name']}-1"
    since, attempts = lab.zxid(), attempts_of(what)
    lab.workers.ask("forget")
    if not refused:
        lab.operator.ask("start", runs=[(what["name"], run)])
        refused = lab.operator.ask("answers", within_s=scale.patience_s)
    if refused:
        yield _ends(words, ended=False, note=f"refused: {refused[0]}")
        return
    tally = lab.workers.ask("await_closed", count=attempts, within_s=scale.patience_s)
    took_s = max(1, tally["last_closed_ns"] - tally["first_seen_ns"]) / 1e9
    state = lab.operator.ask("state", run=run)
    ended = state == "succeeded" and tally["closed"] >= attempts
    note = f"{state}, {tally['closed']:,} of {attempts:,} attempts, {tally['closed'] / took_s:.0f} a second"
    yield _ends(words, ended=ended, note=note)
    yield from _writes(lab, since, run, words)


def _ends(words: str, *, ended: bool, note: str) -> Row:
    return Row(
        measure=MEASURE,
        words=f"{words}: ends",
        unit="run",
        value=float(ended),
        goal=1.0,
        least=True,
        note=note,
    )


def _writes(lab: Lab, since: int, run: str, words: str) -> Iterator[Row]:
    engine = lab.engine.ask("session_id")
    mine = [entry for entry in lab.log(since) if entry.session == engine]
    yield Row(
        measure=MEASURE, words=f"{words}: largest transaction", unit="KiB",
        value=max(entry.size_bytes for entry in mine) / 1024, goal=512.0,
    )  # fmt: skip
    progress = [
        write.size_bytes
        for entry in mine
        for write in entry.writes
        if write.path.startswith(f"{ROOT}/runs/{run}") and not write.is_new
    ]
    tenth = max(1, len(progress) // 10)
    first, last = percentile(progress[:tenth], 0.5), percentile(progress[-tenth:], 0.5)
    yield Row(
        measure=MEASURE, words=f"{words}: largest write of the run's progress", unit="KiB",
        value=max(progress) / 1024, goal=LARGEST_KIB,
        note=f"p50 of the first tenth {first / 1024:.3g}, of the last {last / 1024:.3g}",
    )  # fmt: skip
