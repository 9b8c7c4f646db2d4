"""How a process gives memory back. For programs, at their start: a library does not decide that."""

from __future__ import annotations

import contextlib
import ctypes

_LARGE_BYTES = 2 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def give_back_large_blocks() -> None:
    """Let blocks of 2 MiB and more go back to the system as soon as they are free.

    After a large block was freed, glibc keeps the next ones of such a size for later, for each thread apart:
    frames of packs, of 4 to 8 MiB, then stay some 15 MiB of a process that has synced. Where there is no
    glibc, nothing happens. Safe to repeat.

    Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)
