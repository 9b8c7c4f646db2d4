"""Makes a forked process equivalent to a new program: its own files, signals, environment and state.

A fork happens deep inside the call stack of its parent, which the child must not continue. So the child
raises `Forked`, and `run_program`, at the top, runs the child's work. The child then ends like any program:
exit handlers run and files are flushed. A process must have one thread when it forks, and no `finally` block
on the stack that would be wrong in a child.

Attempts, stacks and tests find their processes by a variable in the environment that /proc shows. The kernel
shows the memory that was filled at the program's start, so a forked process overwrites that area, as
`setproctitle` does. A program that forks must be started with the variable `ROOM`, and with `ARGUMENT_ROOM`
if its own arguments are short.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which cost a fork 0.5 ms
import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Callable

Work = Callable[[], int]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NUMBERS = tuple(map(int, signal.valid_signals()))
_libc = ctypes.CDLL(None, use_errno=True)
ROOM = {"NIMBUS_ROOM": " " * 8192}
"""Reserves space in the environment of a program that forks, for the variables of a child."""
ARGUMENT_ROOM = " " * 256
"""Reserves space as the last argument of a program that forks."""
_PR_SET_NAME = 15
_FIRST_FIELD = 45
"""Index in /proc/self/stat after the command's name: bounds of the arguments, then of the environment."""


class Forked(BaseException):
    """Raised in a forked child to leave the parent's call stack; carries the child's work."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work


def fork(work: Work) -> int:
    """Fork and return the child's pid. The child does `work` at the top of the program, in `run_program`."""
    pid = os.fork()
    if pid == 0:
        raise Forked(work)
    return pid


def run_program(work: Work) -> int:
    """Run a program that may fork; return the exit code, in the parent and in each child."""
    while True:
        try:
            return work()
        except Forked as child:
            work = child.work


def keep_only(*kept: int) -> None:
    """Close all inherited files (locks, sockets, pipes) except the standard ones and `kept`."""
    low = 3
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def write_to(log: Path) -> None:
    """Append standard output and error to a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def reset_signals() -> None:
    """Reset signal handlers to their defaults, as exec does, and unblock all signals."""
    for number in _NUMBERS:
        handler = _signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            _signal.signal(number, _signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_modules() -> None:
    """Undo state that the parent's program set in modules, or that they read from its environment."""
    if (structlog := sys.modules.get("structlog")) is not None:
        structlog.reset_defaults()
    tempfile.tempdir = None
    time.tzset()


def die_with(parent: int) -> bool:
    """Let the kernel kill this process when the parent's thread that forked it ends; False: it is dead.

    Call it last, because a change of the user undoes it.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Make orphaned descendants our own children, so that no descendant can escape."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def take_standard_input() -> int:
    """Move standard input to another descriptor, so that no child inherits it."""
    taken, nowhere = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return taken


def make_room() -> bool:
    """Prepare this process so that its forks can call `show_as`; False: it was started without the room.

    The C library's environment is at first in the area that the kernel shows; it is copied to other memory.
    """
    for variable, value in os.environ.items():
        os.environ[variable] = value
    _, _, start, end = _bounds()
    return end - start >= len(ROOM["NIMBUS_ROOM"])


def show_as(
    name: str, arguments: Iterable[str], environment: Mapping[str, str], hidden: Collection[str] = ()
) -> None:
    """Replace the environment of this process, also in /proc. Its parent must have called `make_room`.

    Args:
        name: For `ps`; the kernel keeps 15 bytes.
        arguments: Truncated to the available space.
        environment: The complete environment. If /proc lacks space, variables of Nimbus are kept longest.
        hidden: Variables that are not shown.
    """
    inherited = dict(os.environ)
    for variable in inherited.keys() - environment.keys():
        del os.environ[variable]
    for variable, value in environment.items():
        if inherited.get(variable) != value:  # writing copies memory pages in a forked process
            os.environ[variable] = value
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    arguments_start, arguments_end, start, end = _bounds()
    _overwrite(arguments_start, arguments_end, arguments)
    shown = [name for name in environment if name not in hidden]
    ours_first = sorted(shown, key=lambda name: not name.startswith("NIMBUS_"))
    _overwrite(start, end, [f"{name}={environment[name]}" for name in ours_first])


@lru_cache(maxsize=1)
def _bounds() -> tuple[int, int, int, int]:
    """The bounds of the arguments and the environment; the same in all forks of a process."""
    text = Path("/proc/self/stat").read_bytes()
    fields = text[text.rindex(b")") + 2 :].split()
    start, middle, environment, end = (int(field) for field in fields[_FIRST_FIELD : _FIRST_FIELD + 4])
    return start, middle, environment, end


def _overwrite(start: int, end: int, words: Iterable[str]) -> None:
    size = end - start
    if size > 0:
        # The last byte stays NUL: with any other value the kernel assumes that the text continues.
        ctypes.memmove(start, os.fsencode("\0".join(words))[: size - 1].ljust(size, b"\0"), size)
