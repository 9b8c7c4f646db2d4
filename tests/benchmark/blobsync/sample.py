"""The measurements of one run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Work:
    """The cost of one run, as the client measured it.

    Args:
        wall_s: Time from just before the request until the work was done.
        cpu_s: CPU time of the client and of its child processes.
        peak_bytes: Largest resident memory of one of its processes.
        grown_bytes: For a running process: the peak minus the memory before the run.
        parts: Named parts of the time, in seconds, if the contender reports them.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    grown_bytes: int | None = None
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One counted run.

    Args:
        others_share: Share of the machine's CPU time that other processes used, 0..1.
    """

    work: Work
    server_cpu_s: float
    others_share: float


@dataclass
class Series:
    """All counted runs of one contender in one case.

    Args:
        disturbed: Number of runs that were discarded because other processes used the machine.
        accepted_disturbed: Number of disturbed runs that were counted because `patience` was used up.
    """

    label: str
    samples: list[Sample] = field(default_factory=list)
    disturbed: int = 0
    accepted_disturbed: int = 0

    @property
    def wall_s(self) -> float:
        return statistics.median(sample.work.wall_s for sample in self.samples)

    @property
    def wall_range_s(self) -> tuple[float, float]:
        walls = [sample.work.wall_s for sample in self.samples]
        return min(walls), max(walls)

    @property
    def client_cpu_s(self) -> float:
        return statistics.median(sample.work.cpu_s for sample in self.samples)

    @property
    def server_cpu_s(self) -> float:
        return statistics.median(sample.server_cpu_s for sample in self.samples)

    @property
    def peak_bytes(self) -> int:
        return max(sample.work.peak_bytes for sample in self.samples)

    @property
    def grown_bytes(self) -> int | None:
        grown = [each for sample in self.samples if (each := sample.work.grown_bytes) is not None]
        return max(grown) if grown else None


Found = dict[str, Series]
"""The series of one case, by the contender's name."""


def counted(found: Found) -> Sequence[Series]:
    """The series that have samples."""
    return [series for series in found.values() if series.samples]
