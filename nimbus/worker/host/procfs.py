"""Reads processes from /proc, and kills them without killing the wrong one.

Process ids wrap within hours on a busy machine, so a pid alone identifies no process: pid and start time
together do. Linux only; any thread may call it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CHILDREN = Path("/proc/thread-self/children")
_POLL_S = 0.02
KILL_DEADLINE_S = 10.0
"""Patience with killed processes."""


@dataclass(frozen=True)
class ProcessId:
    """One process of this boot, not a later one with the same pid."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot: field 22 of /proc/<pid>/stat."""


@dataclass(frozen=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that are used."""

    id: ProcessId
    state: str
    parent: int
    group: int
    session: int

    @property
    def is_dead(self) -> bool:
        """True for a zombie: it has ended, and its parent has not collected it."""
        return self.state in "ZXx"


def oom_kills() -> int:
    """Processes that the kernel's OOM killer ended since boot, in any cgroup; 0 without a counter."""
    try:
        counters = (_PROC / "vmstat").read_bytes()
    except OSError:
        return 0
    _, _, rest = counters.partition(b"\noom_kill ")
    return int(rest.split(b"\n", 1)[0] or 0)


def read_stat(pid: int) -> ProcessStat | None:
    """Read a process's state; None when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may itself contain spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(
        id=ProcessId(pid, int(fields[19])),
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
    )


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process."""
    stat = read_stat(pid)
    return stat.id.start_ticks if stat is not None else None


def is_alive(process: ProcessId) -> bool:
    """True if this process still runs. A zombie does not."""
    stat = read_stat(process.pid)
    return stat is not None and stat.id == process and not stat.is_dead


def environment_of(pid: int) -> bytes | None:
    """The environment at a process's start, NUL-separated; None if it cannot be read."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except (OSError, ProcessLookupError):
        return None


def user_of(pid: int) -> int | None:
    """The real uid of a process; None when there is no such process."""
    try:
        text = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.partition("\nUid:")[2].split()[0])


def living() -> Iterator[ProcessStat]:
    """All processes that have not ended, without those that /proc hides from this user (`hidepid`)."""
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = read_stat(int(entry.name))
        except PermissionError:
            continue
        if stat is not None and not stat.is_dead:
            yield stat


def with_variable(name: str, value: str) -> list[ProcessId]:
    """Living processes of this user that were started with `name=value`."""
    variable = f"{name}={value}".encode()
    environments = ((process.id, environment_of(process.id.pid) or b"") for process in living())
    return [process for process, environment in environments if variable in environment.split(b"\0")]


def session_of(leader: ProcessId) -> list[ProcessId]:
    """Living processes of a session; none if the pid of its leader, which is the session's id, was reused."""
    now = read_stat(leader.pid)
    if now is not None and now.id != leader:
        return []
    return [
        process.id
        for process in living()
        if process.session == leader.pid and process.id.start_ticks >= leader.start_ticks
    ]


def descendants(root: int) -> set[int]:
    """Pids of all living processes below `root`."""
    children: dict[int, list[int]] = {}
    for process in living():
        children.setdefault(process.parent, []).append(process.id.pid)
    below: set[int] = set()
    todo = [root]
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in below]
        below.update(fresh)
        todo.extend(fresh)
    return below


def identities(root: int) -> list[ProcessId]:
    """All living processes below `root`."""
    pids = descendants(root)
    return [process.id for process in living() if process.id.pid in pids]


def below(root: int) -> list[int]:
    """Pids below `root`, like `descendants`, but without reading all processes, and including zombies.

    A process that starts or ends at the same time may hide others: use it for measuring, not for killing.
    """
    if not _CHILDREN.exists():  # a kernel without PROC_CHILDREN
        return sorted(descendants(root))
    pids, todo = [], [root]
    while todo:
        below = children(todo.pop())
        pids += below
        todo += below
    return pids


def children(pid: int) -> list[int]:
    """Pids of the children of a process, as `below`; none without PROC_CHILDREN."""
    return [int(child) for thread in _threads(pid) for child in _words(thread / "children")]


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(victim: ProcessId) -> None:
    """Send SIGKILL to this process, if it still exists.

    A cluster's Python, kernel or sandbox may lack handles. Without one, a pid that is reused within
    microseconds is killed wrongly, which is better than a process that lives on.
    """
    handle = None
    with suppress(AttributeError, OSError):
        handle = os.pidfd_open(victim.pid)
    try:
        # Checked again with the handle open: now the pid cannot be reused unnoticed.
        if is_alive(victim):
            with suppress(ProcessLookupError, PermissionError):
                if handle is None:
                    os.kill(victim.pid, signal.SIGKILL)
                else:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        if handle is not None:
            os.close(handle)


def signal_child(pid: int, number: int) -> None:
    """Signal a child of this process with the group that it led at first. It must not be collected yet."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) != pid:  # it moved to another group
            os.kill(pid, number)
        os.killpg(pid, number)


def kill_all(find: Callable[[], list[ProcessId]], *, deadline_s: float = KILL_DEADLINE_S) -> bool:
    """Kill what `find` returns, repeatedly until none are left, as they may fork; False at the deadline."""
    until = time.monotonic() + deadline_s
    while victims := find():
        for victim in victims:
            kill(victim)
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def open_handle(process: ProcessId) -> int | None:
    """A pidfd of a living process, readable when it ends; None if it is gone. The caller closes it."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return None
    if is_alive(process):
        return handle
    os.close(handle)
    return None
