"""Chains of tiny Spark tasks: cold, in kept JVMs, on a Connect server.

Measured from the end of a task to its successor's code with a session that is ready. A SQL task cannot record
its times, so it is measured from the end of the Python task before it to the start of the one after it.
A task that writes Parquet is measured from its order to its END.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.engine.revision import Revision
from tests.benchmark.tasks.marks import check_once, gaps_ms, read_marks
from tests.benchmark.tasks.ours import Ask, OurStack, our_stack
from tests.benchmark.tasks.shapes import task_document
from tests.benchmark.tasks.whole_run import PARENT, Plan

COLD, KEPT, CONNECT = "cold", "kept JVMs", "connect"
BURST, SQL, WRITE = "burst", "SQL", "Parquet"
_OFF = {"worker": {"idle_jvms": 0}}
_VARIANTS = {
    COLD: Ask(settings=_OFF),
    KEPT: Ask(settings={"worker": {"idle_jvms": 2}}),
    CONNECT: Ask(settings=_OFF, task={"spark": {"mode": "connect"}}),
}
_GOALS = {(KEPT, BURST): 0.15, (KEPT, WRITE): 0.15, (CONNECT, SQL): 1 / 30}


@dataclass(frozen=True)
class SparkRow:
    """One chain of one variant.

    Args:
        of_cold: The median, divided by the median of the cold chain.
        goal: Upper limit for `of_cold`.
    """

    variant: str
    chain: str
    gaps_s: tuple[float, ...] = ()
    of_cold: float | None = None
    goal: float | None = None
    failure: str = ""

    @property
    def words(self) -> str:
        return f"{self.variant}, {self.chain}" if self.chain else self.variant

    @property
    def p50_s(self) -> float:
        return median(self.gaps_s)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def spark(plan: Plan) -> Iterator[SparkRow]:
    """Measure the parent with its default settings, then all variants of this revision."""
    if plan.before is not None:
        yield from _guarded(plan, plan.before, PARENT, Ask())
    cold: dict[str, float] = {}
    for variant, ask in _VARIANTS.items():
        for row in _guarded(plan, plan.after, variant, ask):
            if row.gaps_s and variant == COLD:
                cold[row.chain] = row.p50_s
            of_cold = row.p50_s / cold[row.chain] if row.gaps_s and row.chain in cold else None
            yield replace(row, of_cold=of_cold, goal=_GOALS.get((variant, row.chain)))


def _guarded(plan: Plan, revision: Revision, variant: str, ask: Ask) -> Iterator[SparkRow]:
    try:
        yield from _variant(plan, revision, variant, ask)
    except BenchFailedError as exc:
        yield SparkRow(variant, "", failure=str(exc).splitlines()[0])


def _variant(plan: Plan, revision: Revision, variant: str, ask: Ask) -> Iterator[SparkRow]:
    plan.say(f"Spark: {variant}")
    place = plan.place / f"spark-{variant.replace(' ', '-')}"
    place.mkdir()
    chains = _chains(plan, place)
    with our_stack(revision, plan.place, replace(ask, task={})) as stack:
        stack.start()
        for name, tasks in chains.items():
            stack.publish(_id(name), _with(tasks, ask.task))
        for chain in chains:  # the first chain is a warm-up: it reads files, and JVMs start
            if chain == BURST:
                _run(stack, plan, place, chain, "first")
            threading.Event().wait(plan.scale.settle_s)
            yield SparkRow(variant, chain, gaps_s=_run(stack, plan, place, chain, "measured"))


def _chains(plan: Plan, place: Path) -> dict[str, dict[str, dict[str, Any]]]:
    scale = plan.scale
    return {
        BURST: _spark_chain(place / _id(BURST), scale.spark),
        WRITE: _spark_chain(place / _id(WRITE), scale.spark, str(place / "written")),
        SQL: _sql_chain(place / _id(SQL), scale.spark),
    }


def _id(chain: str) -> str:
    return chain.lower().replace(" ", "-")


def _with(tasks: Mapping[str, Mapping[str, Any]], more: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks, with `more` added to the Spark tasks."""
    return {name: {**task, **(more if task["type"] != "python" else {})} for name, task in tasks.items()}


def _spark_chain(marks: Path, count: int, *args: str) -> dict[str, dict[str, Any]]:
    names = [f"t{number:02}" for number in range(count)]
    return {
        name: {
            "type": "pyspark",
            "script": "spark_task.py",
            "args": [str(marks), "0", *args],
            "needs": names[place - 1 : place] if place else [],
        }
        for place, name in enumerate(names)
    }


def _sql_chain(marks: Path, count: int) -> dict[str, dict[str, Any]]:
    tasks = {"t00": task_document(marks, [])}
    for number in range(1, count):
        needs = [f"t{number - 1:02}"]
        tasks[f"q{number:02}"] = {"type": "sql", "script": "query.sql", "needs": needs}
        tasks[f"t{number:02}"] = task_document(marks, [f"q{number:02}"])
    return tasks


def _run(stack: OurStack, plan: Plan, place: Path, chain: str, name: str) -> tuple[float, ...]:
    pipeline = _id(chain)
    marks = place / pipeline
    marks.unlink(missing_ok=True)
    plan.say(f"  {chain}, {name}")
    run = f"{pipeline}-{name}"
    stack.begin(pipeline, run)
    ended = stack.ended(run, plan.scale.patience_s)
    seen = read_marks(marks)
    check_once(seen, plan.scale.spark)
    if chain == WRITE:
        return tuple(_from_order_to_end_s(task["attempts"][-1]) for task in ended["tasks"])
    return tuple(round(gap / 1000, 4) for gap in gaps_ms(seen))


def _from_order_to_end_s(attempt: Mapping[str, Any]) -> float:
    opened, ended = (datetime.fromisoformat(attempt[key]) for key in ("opened_at", "ended_at"))
    return round((ended - opened).total_seconds(), 4)
