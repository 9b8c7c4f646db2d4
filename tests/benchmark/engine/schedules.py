"""Measure 7: many pipelines due in the same second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tests.benchmark.engine.lab import ROOT, Lab, must
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.shapes import described
from tests.benchmark.leader.figures import summary

MEASURE = "schedules"
_TASKS = 10
_GOAL_S = 1.0
_AHEAD_S = 40.0
"""The engine's clock is set to this time before the minute: an idle engine reads it every 5 s, and runs are
built 30 s before they are due."""
_LATER = timedelta(minutes=30)
"""From now until that minute. The pipelines must be published before it."""
_POLL_S = 0.2


def schedules(lab: Lab, scale: Scale) -> Iterator[Row]:
    """Publish pipelines that are due in the same minute, and set the engine's clock shortly before it."""
    minute = datetime.now(UTC).replace(second=0, microsecond=0) + _LATER
    cron = f"{minute.minute} {minute.hour} * * *"
    due = [described(f"due-{n}", "chain", _TASKS, cron=cron) for n in range(scale.pipelines)]
    must(lab.publish(due, scale.patience_s))
    since, ahead_s = lab.zxid(), lab.engine.ask("step_clock", until=minute.timestamp() - _AHEAD_S)
    until = time.monotonic() + scale.patience_s
    while len(late := _lateness_s(lab, since, minute, ahead_s)) < scale.pipelines:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(late)} of {scale.pipelines} schedules have fired")
        time.sleep(_POLL_S)
    found = summary(late)
    yield Row(
        measure=MEASURE, words=f"lateness, p99, {scale.pipelines:,} pipelines due at once", unit="s",
        value=found["p99"], goal=_GOAL_S, note=f"p50 {found['p50']:.3g}, max {found['max']:.3g}",
    )  # fmt: skip


def _lateness_s(lab: Lab, since: int, minute: datetime, ahead_s: float) -> list[float]:
    """From the fire time until the server wrote the run's record, on the engine's clock."""
    suffix = f"-{minute:%Y%m%dt%H%M%Sz}"
    return [
        entry.at_ms / 1000 + ahead_s - minute.timestamp()
        for entry in lab.log(since)
        for write in entry.writes
        if write.is_new and write.path.startswith(f"{ROOT}/runs/due-") and write.path.endswith(suffix)
    ]
