"""Ends a forked process as its interpreter would, but keeps the modules that the parent had imported.

The normal shutdown of an interpreter destroys all modules and types, which would copy most of the memory that
a fork shares: 20 ms of processor time. The steps that a task can notice are done here, in the interpreter's
order: the error is printed, threads are joined, exit handlers run, and the task's modules are dropped, so
that its open files are flushed. Exit handlers of C libraries do not run, as in the children of
`multiprocessing`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

_INTERRUPTED = -signal.SIGINT
_FLUSH_FAILED = 120
"""Exit code of Python when standard output cannot be written."""


def run_to_end(work: Callable[[], object]) -> NoReturn:
    """Run a program, then end the process with its exit code."""
    last = next(reversed(sys.modules))
    status = _status_of(work)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flushed = _flush()
    _drop_modules_after(last)
    flushed = _flush() and flushed
    ctypes.CDLL(None).fflush(None)
    if status == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status or (0 if flushed else _FLUSH_FAILED))


def _status_of(work: Callable[[], object]) -> int:
    try:
        work()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return (exc.code or 0) & 0xFF
        sys.stderr.write(f"{exc.code}\n")
        return 1
    except BaseException as exc:  # noqa: BLE001 - the top of a program
        sys.excepthook(type(exc), exc, exc.__traceback__)
        return _INTERRUPTED if isinstance(exc, KeyboardInterrupt) else 1
    return 0


def _flush() -> bool:
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            flushed = False
    return flushed


def _drop_modules_after(last: str) -> None:
    """Drop the modules that were imported after `last`; clear those that are still referenced."""
    names: list[str] = []
    for name in reversed(sys.modules):
        if name == last:
            break
        names.append(name)
    dropped = [sys.modules.pop(name) for name in names]
    left = [weakref.ref(module) for module in dropped if isinstance(module, ModuleType)]
    del dropped
    gc.collect()
    for reference in left:
        if (module := reference()) is not None:
            vars(module).clear()
            del module
    gc.collect()
