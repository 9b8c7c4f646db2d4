"""Limits of an attempt: some are enforced by the kernel, the others are measured.

The kernel limits open files and memory of one process, but memory of a process tree only in a delegated
cgroup; and a JVM reserves more memory than it uses. So memory and disk are measured periodically, and an
attempt above its limit is ended. Linux only. The zygote imports this module, so it must import little.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.domain.wording import format_size

if TYPE_CHECKING:
    from nimbus.domain.pipelines.pipeline import Limits

_MEASURE_EVERY_S = 1.0
_PAUSE_FACTOR = 50
"""Pause after a measurement, as a multiple of its duration: measuring uses at most 2 % of a processor."""
_DATA_ROOM = 1 << 30
"""How far one process can exceed the memory limit between measurements; the kernel refuses more."""
_BLOCK = 512
"""Unit of `st_blocks`, on all file systems."""


def impose(open_files: int | None, memory_bytes: int | None) -> None:
    """Set the limits that the kernel enforces, for this process and all its future children.

    Called in the process that will run the task's code, before that code. Never raises the host's limits. A
    driver with a JVM, which crashes without memory, has no `memory_bytes` here.
    """
    if open_files is not None:
        _lower(resource.RLIMIT_NOFILE, open_files)
    if memory_bytes is not None:
        _lower(resource.RLIMIT_DATA, memory_bytes + _DATA_ROOM)


def _lower(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(which, (most, most))


class LimitWatch:
    """Measures one attempt when `check` is called. One thread at a time."""

    def __init__(
        self,
        limits: Limits,
        *,
        processes: Callable[[], Iterable[int]],
        folders: Sequence[Path],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`processes` returns the pids of all its processes. None of `folders` is inside another."""
        self._limits, self._processes, self._folders, self._clock = limits, processes, folders, clock
        self.peak_bytes = 0
        self._next_memory_s = self._next_disk_s = float("-inf")

    @property
    def is_needed(self) -> bool:
        """False if the attempt has no limit that is measured."""
        return self._limits.memory_bytes is not None or self._limits.disk_bytes is not None

    def check(self, now_s: float) -> str | None:
        """Measure what is due by a monotonic clock; return why the attempt must be ended, or None."""
        return self._check_memory(now_s) or self._check_disk(now_s)

    def _check_memory(self, now_s: float) -> str | None:
        limit = self._limits.memory_bytes
        if limit is None or now_s < self._next_memory_s:
            return None
        before = self._clock()
        pids = list(self._processes())
        used = sum(map(_resident_bytes, pids))  # an upper bound, and cheap
        if used > limit:
            used = memory_bytes(pids)
        self.peak_bytes = max(self.peak_bytes, used)
        self._next_memory_s = now_s + self._pause_s(before)
        return _excess(used, "memory", limit)

    def _check_disk(self, now_s: float) -> str | None:
        limit = self._limits.disk_bytes
        if limit is None or now_s < self._next_disk_s:
            return None
        before = self._clock()
        used = disk_bytes(self._folders)
        self._next_disk_s = now_s + self._pause_s(before)
        return _excess(used, "disk", limit)

    def _pause_s(self, before: float) -> float:
        return max(_MEASURE_EVERY_S, (self._clock() - before) * _PAUSE_FACTOR)


def _excess(used: int, what: str, limit: int) -> str | None:
    if used <= limit:
        return None
    return f"ended: it used {format_size(used)} of {what}, and its limit is {format_size(limit)}"


def is_memory(exceeded: str) -> bool:
    """True if `LimitWatch.check` found the memory limit exceeded."""
    return " of memory, " in exceeded


def memory_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes; shared memory counts once, mapped files not. Takes 16 ms for each GiB."""
    return sum(map(_held_bytes, pids))


def _held_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    except PermissionError:  # it belongs to another user
        return _resident_bytes(pid)
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return (kib["Pss"] - kib.get("Pss_File", 0)) << 10


def _resident_bytes(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(words[1]) * resource.getpagesize()


def disk_bytes(folders: Iterable[Path]) -> int:
    """Disk usage of the files below these folders. Links are not followed."""
    return sum(map(_allocated, folders))


def _allocated(folder: Path) -> int:
    total, todo = 0, [str(folder)]
    while todo:
        for entry in _entries(todo.pop()):
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
            except OSError:
                continue
    return total


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return
