"""Turns what was measured into text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.benchmark.leader.figures import summary


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


def handover_table(samples: Mapping[int, Mapping[str, Sequence[float]]], labels: Mapping[str, str]) -> str:
    """Percentiles of each contender and size, with ratios to ours and to its smallest queue."""
    rows = [["hand-over, ms", "queue", "p50", "p90", "p99", "max", "p50 ours/this", "p99 ours/this", "flat"]]
    smallest = min(samples)
    for size, by_contender in samples.items():
        ours = summary(by_contender["ours"]) if by_contender.get("ours") else None
        for name, values in by_contender.items():
            found = summary(values)
            flat = found["p50"] / summary(samples[smallest][name])["p50"]
            ratios = [f"{ours[point] / found[point]:.2f}" if ours else "-" for point in ("p50", "p99")]
            points = [f"{found[point]:.2f}" for point in ("p50", "p90", "p99", "max")]
            rows.append([labels[name], str(size), *points, *ratios, f"{flat:.2f}"])
    return aligned(rows)
