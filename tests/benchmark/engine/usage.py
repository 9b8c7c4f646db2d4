"""Resource use of this process."""

from __future__ import annotations

import time
from pathlib import Path


def usage() -> dict[str, float]:
    """CPU seconds since its start, and its proportional set size (PSS) now."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return {"cpu_s": time.process_time(), "pss_mib": int(line.split()[1]) / 1024}
    raise RuntimeError("/proc/self/smaps_rollup has no line Pss")
