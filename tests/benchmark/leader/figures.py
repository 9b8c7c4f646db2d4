"""Computes percentiles, and describes the machine."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from tests.benchmark.leader.clock import now_ns


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value such that at least this share of all values are not larger (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and the largest."""
    points = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(percentile(values, share), 4) for name, share in points.items()}


def file_system(folder: Path) -> str:
    """Type and mount point of the file system of `folder`, such as `ext4 on /`."""
    best, kind = Path("/"), "?"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _device, mount, found, *_ = line.split()
        point = Path(mount)
        if folder.resolve().is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, found
    return f"{kind} on {best}"


def fsync_ms(folder: Path, writes: int = 200) -> dict[str, float]:
    """Time in ms until a small appended write is durable: the floor of each ZooKeeper write."""
    took = []
    probe = folder / "fsync-probe"
    with probe.open("wb", buffering=0) as file:
        file.write(bytes(4 << 20))  # ZooKeeper's log is allocated in advance, too
        os.fsync(file.fileno())
        file.seek(0)
        for _ in range(writes):
            before = now_ns()
            file.write(bytes(512))
            os.fdatasync(file.fileno())
            took.append((now_ns() - before) / 1e6)
    probe.unlink()
    return summary(took)


def machine() -> dict[str, object]:
    """Describe the machine, because the figures depend on it."""
    return {
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }
