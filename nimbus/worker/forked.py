"""What makes a forked process as one that was started: its own files, signals, environment and state.

A fork happens deep in the calls of its parent's program, in which the child must not go on. So the child
raises `Forked`, and `run_program`, at the top, runs the child's work; the child then ends as any program
does, with its exit handlers run and its files flushed. A process has one thread when it forks, and no
`finally` on the way up that would be wrong in a child.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which cost a fork 0.5 ms
import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Work = Callable[[], int]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NUMBERS = tuple(map(int, signal.valid_signals()))
_libc = ctypes.CDLL(None, use_errno=True)


class Forked(BaseException):
    """This process is a new one and has work of its own."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work


def fork(work: Work) -> int:
    """Fork; the child's pid. The child does `work` at the top of the program, below `run_program`."""
    pid = os.fork()
    if pid == 0:
        raise Forked(work)
    return pid


def run_program(work: Work) -> int:
    """Run a program that may fork; the exit code of the process, parent or child, that comes back."""
    while True:
        try:
            return work()
        except Forked as child:
            work = child.work


def keep_only(*kept: int) -> None:
    """Close all files but the standard ones and `kept`: locks, sockets and pipes of the parent."""
    low = 3
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def write_to(log: Path) -> None:
    """Send standard output and error to the end of a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def reset_signals() -> None:
    """Do what exec does: default where the parent has a handler. And let nothing be blocked."""
    for number in _NUMBERS:
        handler = _signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            _signal.signal(number, _signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_modules() -> None:
    """Undo what the parent's program set in modules, or what they read from its environment."""
    if (structlog := sys.modules.get("structlog")) is not None:
        structlog.reset_defaults()
    tempfile.tempdir = None
    time.tzset()


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent's thread that forked it ends.

    The last step: a change of the user undoes it.

    Returns:
        False when the parent is dead already.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Make what children leave behind our own children: nothing below us can slip away."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def take_standard_input() -> int:
    """A copy of standard input's descriptor, so that no child inherits standard input."""
    taken, nowhere = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return taken
