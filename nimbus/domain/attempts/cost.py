"""What an attempt used: processor time and memory on its host, and what its Spark did. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from nimbus.domain.wording import format_size, format_span

LARGEST = 2**53 - 1
"""Limit of each figure: the largest whole number that all readers of JSON know exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The figures of an attempt that has ended. None: not known, or it had no such Spark."""

    cpu_ms: int | None = None
    """User and system time of the driver and all processes below it, with its Spark's JVM."""
    peak_memory_bytes: int | None = None
    """Most resident memory of the largest of these processes. With `limits.memory`, of all of them together,
    if a measurement found more."""
    task_ms: int | None = None
    """Time in which Spark's tasks ran, added over all executors."""
    shuffle_read_bytes: int | None = None
    shuffle_write_bytes: int | None = None
    spill_bytes: int | None = None
    """What Spark wrote to local disks because memory was short."""
    executor_peak_bytes: int | None = None
    """Most memory of one executor on another host, as its heartbeats reported it."""


_NAMES = tuple(field.name for field in fields(Cost))


def cost_of(told: object) -> Cost | None:
    """The cost in a report, of which other entries are ignored: user code may have written them."""
    if not isinstance(told, Mapping):
        return None
    figures = {name: told.get(name) for name in _NAMES}
    valid = {name: value for name, value in figures.items() if type(value) is int and 0 <= value <= LARGEST}
    return Cost(**valid) if valid else None


def cost_in_words(cost: Cost) -> str:
    """For example `1.2 GiB peak, 34 s CPU; Spark: 3 min task time, 1.1 GiB shuffle, no spill`."""
    spark = ", ".join(_spark(cost))
    here = []
    if cost.peak_memory_bytes is not None:
        here.append(f"{format_size(cost.peak_memory_bytes)} peak")
    if cost.cpu_ms is not None:
        here.append(f"{format_span(cost.cpu_ms / 1000)} CPU")
    return "; ".join(filter(None, (", ".join(here), spark and f"Spark: {spark}")))


def _spark(cost: Cost) -> Iterator[str]:
    if cost.task_ms is not None:
        yield f"{format_span(cost.task_ms / 1000)} task time"
    for count, what in ((cost.shuffle_write_bytes, "shuffle"), (cost.spill_bytes, "spill")):
        if count is not None:
            yield f"{format_size(count) if count else 'no'} {what}"
    if cost.executor_peak_bytes is not None:
        yield f"{format_size(cost.executor_peak_bytes)} peak of an executor"
