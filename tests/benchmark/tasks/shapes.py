"""The workloads, and the pipelines that we publish for them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHAIN, FANOUT, SMALL, LOGS, SPARK, BESIDE = "chain", "fanout", "small", "logs", "spark", "beside"
SLOTS = 8
"""Number of tasks that run in parallel, with every product."""
_SCRIPTS = Path(__file__).parent / "pipeline"


@dataclass(frozen=True)
class Scale:
    """How large the workloads are.

    Args:
        chain: Tasks of the chain.
        fanout: Tasks that the join waits for.
        small: Runs, and tasks of each.
        spark: Tasks of a chain of Spark tasks.
        spark_long_s: Duration of the Spark task during which our processes are measured.
        settle_s: Pause before a workload, so that work of the previous one is done.
        kills_s: Shortest and longest time from one kill to the next.
        patience_s: Longest time for a workload of one product.
    """

    chain: int
    fanout: int
    small: tuple[int, int]
    spark: int
    spark_long_s: float
    settle_s: float
    kills_s: tuple[float, float]
    patience_s: float


FULL = Scale(
    chain=500, fanout=500, small=(50, 20), spark=8, spark_long_s=60.0,
    settle_s=3.0, kills_s=(1.0, 6.0), patience_s=1200.0,
)  # fmt: skip
QUICK = Scale(
    chain=40, fanout=60, small=(5, 8), spark=3, spark_long_s=5.0,
    settle_s=0.5, kills_s=(0.5, 2.0), patience_s=300.0,
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A workload, independent of the product that runs it.

    Args:
        kind: `chain` or `fanout`, which has a join.
        width: Tasks of a run, without the join.
        lines: Number of lines that each task prints.
    """

    workload: str
    kind: str
    width: int
    runs: int = 1
    lines: int = 0

    @property
    def tasks(self) -> int:
        """Number of tasks of all runs."""
        return self.runs * (self.width + (self.kind == FANOUT))


def shapes(scale: Scale) -> dict[str, Shape]:
    """The workloads of tasks that do nothing."""
    runs, width = scale.small
    return {
        CHAIN: Shape(CHAIN, CHAIN, scale.chain),
        FANOUT: Shape(FANOUT, FANOUT, scale.fanout),
        SMALL: Shape(SMALL, CHAIN, width, runs),
        LOGS: Shape(LOGS, FANOUT, scale.fanout, lines=3),
    }


def needs_of(shape: Shape) -> dict[str, list[str]]:
    """The tasks of a run, each with the tasks that it needs."""
    names = [f"t{number:05}" for number in range(shape.width)]
    if shape.kind == CHAIN:
        return {name: names[place - 1 : place] if place else [] for place, name in enumerate(names)}
    return {**{name: [] for name in names}, "join": names}


def task_document(marks: Path, needs: list[str], *, lines: int = 0, seconds: float = 0) -> dict[str, Any]:
    """A task that does nothing, in the form of `pipeline.yaml`."""
    return {
        "type": "python",
        "script": "task.py",
        "args": [str(marks), str(lines), str(seconds)],
        "needs": needs,
    }


def write_pipeline(folder: Path, name: str, tasks: Mapping[str, Mapping[str, Any]]) -> None:
    """A pipeline's folder, with the scripts of the benchmark."""
    folder.mkdir(parents=True)
    for script in _SCRIPTS.iterdir():
        if script.suffix in (".py", ".sql"):
            shutil.copy(script, folder)
    document = {"schema": 1, "name": name, "files": ["*.py", "*.sql"], "tasks": dict(tasks)}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
