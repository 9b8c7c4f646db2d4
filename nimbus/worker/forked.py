"""Makes a forked process equivalent to a new program: its own files, signals, environment and state.

A fork happens deep inside the call stack of its parent, which the child must not continue. So the child
raises `Forked`, and `run_program`, at the top, runs the child's work. The child then ends like any program:
exit handlers run and files are flushed. A process must have one thread when it forks, and no `finally` block
on the stack that would be wrong in a child.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which cost a fork 0.5 ms
import ctypes
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

Work = Callable[[], int]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NUMBERS = tuple(map(int, signal.valid_signals()))
_libc = ctypes.CDLL(None, use_errno=True)


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
    """Let the kernel kill this process when the parent's thread that forked it ends.

    Call it last, because a change of the user undoes it.

    Returns:
        False if the parent is already dead.
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
