"""Makes a process return freed memory. Programs call it at their start; a library must not decide that."""

from __future__ import annotations

import contextlib
import ctypes

_LARGE_BYTES = 2 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def give_back_large_blocks() -> None:
    """Make glibc return blocks of 2 MiB and more to the system as soon as they are freed.

    After a large block was freed, glibc keeps later blocks of that size for reuse, for each thread
    separately. After a sync, freed frames of packs, of up to 4 MiB, then take some 15 MiB. Without glibc this
    does nothing. Safe to repeat.

    Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)
