"""Formats the measurements as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tests.benchmark.engine.rows import Row, table
from tests.benchmark.leader.table import aligned
from tests.benchmark.tasks.shapes import CHAIN, FANOUT
from tests.benchmark.tasks.usage import HARNESS, HELPERS, S3, ZOOKEEPER
from tests.benchmark.tasks.whole_run import ISOLATED, PARENT, POOLED, Figures

if TYPE_CHECKING:
    from tests.benchmark.tasks.durable import Durable
    from tests.benchmark.tasks.spark import SparkRow

_OURS = (POOLED, ISOLATED, PARENT)


def tables(found: Sequence[Figures]) -> list[str]:
    """A table for each workload, then the use of processor time, then the failures."""
    workloads = dict.fromkeys(each.workload for each in found if each.tasks_per_s)
    shown = [_workload(name, [each for each in found if each.workload == name]) for name in workloads]
    ours = [each for each in found if each.product in _OURS and each.cpu_ms]
    if ours:
        shown.append(_where(ours))
    shown += [
        f"{each.product}: {each.objects} objects in S3 for the logs of {each.tasks} tasks"
        for each in found
        if each.objects is not None
    ]
    shown += [
        f"{each.product}: left out: {each.failure or each.skipped}"
        for each in found
        if each.failure or each.skipped
    ]
    return shown


def _workload(name: str, found: Sequence[Figures]) -> str:
    first = found[0]
    heading = [f"{name}, {first.tasks} tasks", "tasks/s", "this / first", "CPU ms/task", "this / first"]
    heading += ["PSS idle MiB", "peak"] + (["gap p50 ms", "p99", "p50 / first"] if name == CHAIN else [])
    rows = [heading]
    for each in found:
        cells = [each.product, f"{each.tasks_per_s:.1f}", _ratio(each.tasks_per_s, first.tasks_per_s)]
        cells += [f"{each.all_cpu_ms:.1f}", _ratio(each.all_cpu_ms, first.all_cpu_ms)]
        cells += [f"{each.idle_mib:.0f}", f"{each.peak_mib:.0f}"]
        if name == CHAIN:
            p50, p99 = each.gap_ms["p50"], each.gap_ms["p99"]
            cells += [f"{p50:.1f}", f"{p99:.1f}", _ratio(p50, first.gap_ms["p50"])]
        rows.append(cells)
    return aligned(rows)


def _where(found: Sequence[Figures]) -> str:
    kinds = list(dict.fromkeys(kind for each in found for kind in each.cpu_ms))
    rows = [["CPU ms for a task, by process", *kinds, "all"]]
    for each in found:
        cells = [f"{each.cpu_ms[kind]:.1f}" if kind in each.cpu_ms else "-" for kind in kinds]
        rows.append([f"{each.product}, {each.workload}", *cells, f"{each.all_cpu_ms:.1f}"])
    return aligned(rows)


def _ratio(this: float, first: float) -> str:
    return f"{this / first:.3g}" if first else "-"


def goals(found: Sequence[Figures], spark: Sequence[SparkRow]) -> str:
    """The goals, and whether they are met."""
    rows = []
    of = {(each.product, each.workload): each for each in found}
    for product, gap, gap_p99, per_s in ((POOLED, 20, 60, 120), (ISOLATED, 80, None, 25)):
        if chain := of.get((product, CHAIN)):
            rows.append(_row(f"{product}: gap, p50", "ms", chain.gap_ms["p50"], gap))
            if gap_p99 is not None:
                rows.append(_row(f"{product}: gap, p99", "ms", chain.gap_ms["p99"], gap_p99))
        if wide := of.get((product, FANOUT)):
            rows.append(_row(f"{product}: fan-out", "tasks/s", wide.tasks_per_s, per_s, least=True))
        if product == ISOLATED and wide:
            theirs = sum(wide.cpu_ms.get(kind, 0.0) for kind in ("runners", "drivers", "runners and drivers"))
            rows.append(_row("isolated: CPU of runner and driver", "ms", theirs, 40))
    rows += [
        _row(f"Spark: {row.words}, of cold", "x", row.of_cold, row.goal)
        for row in spark
        if row.goal is not None and row.of_cold is not None
    ]
    return table("goals", {"after": rows})


def _row(words: str, unit: str, value: float, goal: float, *, least: bool = False) -> Row:
    return Row(measure="goals", words=words, unit=unit, value=value, goal=goal, least=least)


def spark_table(rows: Sequence[SparkRow]) -> str:
    """Gaps of Spark tasks."""
    shown = [
        [
            "Spark: end of a task to its successor's code (Parquet: order to END)",
            "p50 s",
            "max s",
            "of cold",
            "notes",
        ]
    ]
    for row in rows:
        if not row.gaps_s:
            shown.append([row.words, "-", "-", "-", row.failure])
            continue
        of_cold = f"{row.of_cold:.3f}" if row.of_cold is not None else "-"
        shown.append([row.words, f"{row.p50_s:.3f}", f"{max(row.gaps_s):.3f}", of_cold, ""])
    return aligned(shown)


def beside_table(used: Mapping[str, float], seconds: float) -> str:
    """Processor time during a long Spark task. The sum `ours` is without ZooKeeper, S3 and helpers."""
    servers = (ZOOKEEPER, S3, HELPERS, HARNESS)
    ours = sum(value for kind, value in used.items() if kind not in servers)
    heading = [f"CPU s during a Spark task of {seconds:.0f} s", *used, "ours"]
    return aligned([heading, ["", *(f"{value:.2f}" for value in used.values()), f"{ours:.2f}"]])


def durable_table(result: Durable) -> str:
    """The kills, the results of the checks, and the memory."""
    killed = ", ".join(f"{name} {times}x" for name, times in result.killed.items())
    lost = result.attempts - result.tasks - result.quiet_tasks
    lines = [
        f"{result.tasks} tasks in {result.runs} runs: {result.took_s:.0f} s, {result.tasks_per_s:.1f}/s",
        f"kills: {killed}; attempts lost because of them: {lost}",
    ]
    lines += [f"BROKEN: {fault}" for fault in result.faults]
    lines.append("all checks passed" if result.good else f"{len(result.faults)} faults")
    points = list(result.memory)
    names = list(dict.fromkeys(name for point in points for name in result.memory[point]))
    rows = [[f"RSS, MiB, of {result.quiet_tasks} more tasks without kills", *points]]
    rows += [[name, *(str(result.memory[point].get(name, "-")) for point in points)] for name in names]
    return "\n".join(lines) + "\n\n" + aligned(rows)
