"""Large free blocks are returned to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from pathlib import Path
from blobsync.malloc import give_back_large_blocks

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

give_back_large_blocks()
give_back_large_blocks()
before = resident_mib()
for _ in range(3):  # glibc learns from the first that is freed, and keeps the others
    held = b"x" * (6 << 20)
    del held
print(resident_mib() - before)
"""


def has_glibc() -> bool:
    import platform

    return platform.libc_ver()[0] == "glibc"


@pytest.mark.skipif(not has_glibc(), reason="only glibc keeps them")
def test_process_that_used_large_blocks_does_not_keep_them() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)

    assert float(done.stdout) < 3
