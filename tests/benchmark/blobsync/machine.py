"""Describes the machine, because the figures depend on it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path


def file_system(folder: Path) -> str:
    """Type and mount point of the file system of `folder`, such as `ext4 on /`."""
    best, kind = Path("/"), "?"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _device, mount, found, *_ = line.split()
        if folder.resolve().is_relative_to(mount) and len(Path(mount).parts) >= len(best.parts):
            best, kind = Path(mount), found
    return f"{kind} on {best}"


def machine(folder: Path) -> dict[str, object]:
    """CPUs, memory, versions, file system and load."""
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "file_system": file_system(folder),
        "load_before": os.getloadavg()[0],
        "versions": {name: metadata.version(name) for name in ("boto3", "blake3", "zstandard")},
    }
