"""Formats the measurements as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.benchmark.leader.figures import summary

Samples = Mapping[int, Mapping[str, Sequence[float]]]
Labels = Mapping[str, str]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table: the first row is the heading, the first column is text, the others are numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: Iterable[str]) -> str:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    heading, *body = rows
    return "\n".join([line(heading), "  ".join("-" * width for width in widths), *map(line, body)])


def handover_table(samples: Samples, labels: Labels) -> str:
    """Percentiles of each contender and size, with ratios to ours and to its smallest queue."""
    rows = [["hand-over, ms", "queue", "p50", "p90", "p99", "max", "ours/this p50", "p99", "p50 / smallest"]]
    smallest = min(samples)
    for size, by_contender in samples.items():
        ours = summary(by_contender["ours"]) if "ours" in by_contender else None
        for name, values in by_contender.items():
            found = summary(values)
            flat = found["p50"] / summary(samples[smallest][name])["p50"]
            ratios = [f"{ours[point] / found[point]:.2f}" if ours else "-" for point in ("p50", "p99")]
            points = [f"{found[point]:.2f}" for point in ("p50", "p90", "p99", "max")]
            rows.append([labels[name], str(size), *points, *ratios, f"{flat:.2f}"])
    return aligned(rows)


def wire_table(costs: Mapping[str, Any], labels: Labels, participants: int) -> str:
    """Requests and bytes when a participant joins, and when a leader leaves."""
    parts = ("join", "leave", "take over", "others")
    rows = [[f"requests / bytes, {participants} in the queue", *parts]]
    for name, cost in costs.items():
        cells = [f"{cost[part]['requests']:g} / {cost[part]['bytes']:g}" for part in parts]
        rows.append([labels[name], *cells])
    return aligned(rows)


def idle_table(costs: Mapping[str, Mapping[str, float]], labels: Labels) -> str:
    """The cost of a waiting participant."""
    rows = [["a waiting participant", "threads", "CPU, us each second", "its whole process, us each second"]]
    for name, cost in costs.items():
        cells = (cost["threads"], cost["cpu_us_per_s"], cost["process_cpu_us_per_s"])
        rows.append([labels[name], *(f"{value:g}" for value in cells)])
    return aligned(rows)


def call_table(cost: Mapping[str, float]) -> str:
    """The costs of our leader."""
    fenced = cost["fenced_write_ms_p50"]
    rows = [["our leader", "p50", "fenced / this"]]
    rows.append(["is_leader(), ns, best repeat", f"{cost['is_leader_ns_best']:.0f}", ""])
    rows.append(["is_leader(), ns", f"{cost['is_leader_ns_p50']:.0f}", ""])
    for name, words in (
        ("plain", "set"),
        ("transaction", "the same set in a transaction"),
        ("fenced", "fenced"),
    ):
        p50 = cost[f"{name}_write_ms_p50"]
        rows.append([f"a write, {words}, ms", f"{p50:.3f}", f"{fenced / p50:.3f}"])
    return aligned(rows)
