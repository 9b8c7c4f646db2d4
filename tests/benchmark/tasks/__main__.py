"""Measures the cost of a task in Nimbus and other products; docs/benchmarks.md explains the figures."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmark.engine.revision import checkout_of, this_checkout
from tests.benchmark.leader.figures import file_system, fsync_ms, machine
from tests.benchmark.tasks.beside import beside
from tests.benchmark.tasks.durable import durable
from tests.benchmark.tasks.shapes import BESIDE, CHAIN, FANOUT, FULL, LOGS, QUICK, SMALL, SPARK
from tests.benchmark.tasks.spark import spark
from tests.benchmark.tasks.tables import beside_table, durable_table, goals, spark_table, tables
from tests.benchmark.tasks.whole_run import PARENT, PRODUCTS, Plan, whole_run

_WORKLOADS = (CHAIN, FANOUT, SMALL, LOGS, SPARK, BESIDE)
_DURABLE = 20_000
_DURABLE_QUICK = 500


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.tasks", description=__doc__)
    add = parser.add_argument
    add("--products", type=lambda text: text.split(","), default=list(PRODUCTS), help=",".join(PRODUCTS))
    add("--workloads", type=lambda text: text.split(","), default=list(_WORKLOADS), help=",".join(_WORKLOADS))
    add("--before", metavar="REV", help="commit to measure as the product `parent`; by default, none")
    add("--quick", action="store_true", help="few tasks, to check that it works; the figures mean little")
    add(
        "--durable",
        type=int,
        nargs="?",
        const=0,
        metavar="N",
        help="kill processes during N tasks, default 20,000",
    )
    add("--seed", type=int, default=1, help="seed for the times and targets of the kills of --durable")
    add("--data", type=Path, default=Path("build"), help="folder for all data, such as /dev/shm")
    add("--json", type=Path, default=Path("build/bench-tasks.json"))
    options = parser.parse_args(words)
    for given, known in ((options.products, PRODUCTS), (options.workloads, _WORKLOADS)):
        if unknown := set(given) - set(known):
            parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    if options.before is None:
        options.products = [product for product in options.products if product != PARENT]
    return options


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns exit code 1 if a product broke down, or a task was lost or run twice."""
    options = _arguments(words)
    options.data.mkdir(parents=True, exist_ok=True)
    with _place(options.data) as place, contextlib.ExitStack() as stack:
        before = stack.enter_context(checkout_of(options.before, place)) if options.before else None
        plan = Plan(
            place=place,
            scale=QUICK if options.quick else FULL,
            products=options.products,
            workloads=options.workloads,
            after=this_checkout(),
            before=before,
            say=_say,
        )
        what = {**machine(), "file_system": file_system(place), "fsync_ms": fsync_ms(place)}
        _say(f"a durable write takes {what['fsync_ms']['p50']} ms on {what['file_system']}")  # type: ignore[index]
        measure = _durable if options.durable is not None else _costs
        good, found = measure(plan, options)
    commits = {revision.label: revision.commit for revision in (plan.after, plan.before) if revision}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": what, "commits": commits, "quick": options.quick, **found}
    options.json.write_text(json.dumps(result, indent=1))
    _say(f"\nall figures: {options.json}")
    return 0 if good else 1


def _costs(plan: Plan, _options: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    figures = list(whole_run(plan))
    for table in tables(figures):
        _say("\n" + table)
    rows = list(spark(plan)) if SPARK in plan.workloads else []
    if rows:
        _say("\n" + spark_table(rows))
    used = beside(plan, plan.scale.spark_long_s) if BESIDE in plan.workloads else {}
    if used:
        _say("\n" + beside_table(used, plan.scale.spark_long_s))
    _say("\n" + goals(figures, rows))
    found = {"figures": [each.document() for each in figures], "spark": [row.document() for row in rows]}
    found["beside"] = [dict(used)] if used else []
    failures = [each.failure for each in figures] + [row.failure for row in rows]
    return not any(failures), found


def _durable(plan: Plan, options: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    tasks = options.durable or (_DURABLE_QUICK if options.quick else _DURABLE)
    result = durable(plan, tasks, options.seed)
    _say("\n" + durable_table(result))
    return result.good, {"durable": result.document()}


@contextlib.contextmanager
def _place(data: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bench-tasks-", dir=data.absolute()))
    place.chmod(0o711)  # if root runs this, Postgres runs as another user
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all child processes are ended
    sys.exit(main())
