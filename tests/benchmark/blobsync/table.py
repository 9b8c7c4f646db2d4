"""Formats the measurements as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.benchmark.blobsync.goals import Verdict
from tests.benchmark.blobsync.lab import Source
from tests.benchmark.blobsync.sample import Found, Series

_MIB = 1 << 20


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


def case_table(title: str, found: Found, bare_bytes: int) -> str:
    """One line for each contender, with our time divided by its time."""
    command, host = found.get("ours-command"), found.get("ours-host")
    rows = [
        [
            title,
            "wall",
            "min..max",
            "client CPU",
            "server CPU",
            "peak, MiB",
            "command / this",
            "process / this",
            "discarded",
        ]
    ]
    for name, series in found.items():
        ours = name.startswith("ours")
        peak = (series.peak_bytes - bare_bytes if ours else series.peak_bytes) / _MIB
        low, high = series.wall_range_s
        rows.append(
            [
                series.label,
                time_words(series.wall_s),
                f"{time_words(low)}..{time_words(high)}",
                time_words(series.client_cpu_s),
                time_words(series.server_cpu_s),
                f"{'+' if ours else ''}{peak:.0f}",
                "" if ours else _ratio(command, series),
                "" if ours else _ratio(host, series),
                _thrown(series),
            ]
        )
    return aligned(rows)


def goal_table(verdicts: Sequence[Verdict]) -> str:
    """Each goal, what was measured, and the verdict."""
    rows = [["goal", "at most", "measured", ""]]
    for verdict in verdicts:
        value = "-" if verdict.value is None else f"{verdict.value:.3g}"
        rows.append([verdict.words, f"{verdict.limit:g}", value, verdict.outcome])
    return aligned(rows)


def publish_table(sources: Mapping[str, Source]) -> str:
    """The cost of the upload to S3. Packing is additional work, which the publisher does once."""
    rows = [["upload to S3, once", "publish, wall", "publish, CPU", "stored", "plain files, rclone"]]
    for source in sources.values():
        if (cost := source.published) is None:
            continue
        stored = sum(source.objects.values()) / source.files.total_bytes
        plain = "-" if source.uploaded_s is None else time_words(source.uploaded_s)
        words = [source.files.words, time_words(cost.wall_s), time_words(cost.cpu_s), f"{stored:.0%}", plain]
        rows.append(words)
    return aligned(rows)


def bytes_table(moved: Mapping[str, int]) -> str:
    """The bytes that were transferred."""
    rows = [["bytes transferred, both ways", "bytes", "of the files", "of the first transfer"]]
    for word in ("publish", "sync"):
        for part in ("all", "changed"):
            count = moved[f"{word}_{part}"]
            of_all = f"{count / moved[f'{word}_all']:.2%}"
            rows.append([f"{word}, {part}", f"{count:,}", f"{count / moved['files']:.2%}", of_all])
    return aligned(rows)


def time_words(seconds: float) -> str:
    """A time with a suitable unit."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _ratio(ours: Series | None, other: Series) -> str:
    return f"{ours.wall_s / other.wall_s:.3f}" if ours is not None and other.wall_s else "-"


def _thrown(series: Series) -> str:
    kept = f", {series.accepted_disturbed} disturbed counted" if series.accepted_disturbed else ""
    return f"{series.disturbed}{kept}"
