"""Ends a task's process as its interpreter would.

`completed` runs a task's code to its end: the error is printed, threads are joined, and exit handlers run, in
the interpreter's order. So what they do is part of the attempt.

`run_fork` ends a forked process, but keeps the modules that the parent had imported. The normal shutdown of
an interpreter destroys all modules and types, which would copy most of the memory that a fork shares: 20 ms
of processor time. The task's modules are dropped, so that its open files are flushed. Exit handlers of C
libraries do not run, as in the children of `multiprocessing`.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from traceback import TracebackException

_libc = ctypes.CDLL(None)
_INTERRUPTED = -signal.SIGINT
_FLUSH_FAILED = 120
"""Exit code of Python when standard output cannot be written."""


def completed(work: Callable[[], object], release_root: str) -> int:
    """Run a program's code, threads and exit handlers; return its exit status, negative for a signal."""
    status = _status_of(work, release_root)
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        try:
            step()
        except BaseException as exc:  # noqa: BLE001 - raised by a signal handler: the interpreter continues, too
            sys.excepthook(type(exc), exc, exc.__traceback__)
    return status


def run_fork(work: Callable[[], int]) -> NoReturn:
    """Run a driver in a forked process, then end the process with the exit status that `work` returns."""
    last = next(reversed(sys.modules))
    status = _status_of(work)
    flushed = _flush()
    _drop_modules_after(last)
    flushed = _flush() and flushed
    _libc.fflush(None)
    die_if_interrupted(status)
    os._exit(status or (0 if flushed else _FLUSH_FAILED))


def die_if_interrupted(status: int) -> None:
    """End by SIGINT if that was how the program ended."""
    if status == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _status_of(work: Callable[[], object], release_root: str = "") -> int:
    try:
        status = work()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return (exc.code or 0) & 0xFF
        sys.stderr.write(f"{exc.code}\n")
        return 1
    except BaseException as exc:  # noqa: BLE001 - the top of a program
        print_error(exc, release_root)
        return _INTERRUPTED if isinstance(exc, KeyboardInterrupt) else 1
    return status if isinstance(status, int) else 0


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
    if (
        "__main__" in names
    ):  # else the garbage collector may close a file before what it has buffered is written
        vars(dropped[names.index("__main__")]).clear()
    left = [weakref.ref(module) for module in dropped if isinstance(module, ModuleType)]
    del dropped
    gc.collect()
    for reference in left:
        if (module := reference()) is not None:
            vars(module).clear()
            del module
    gc.collect()


WHOLE_VARIABLE = "NIMBUS_WHOLE_TRACEBACK"
"""With any value in the environment of a task, its error is printed as the interpreter would."""
_OURS = f"{Path(__file__).parents[2]}{os.sep}"


def print_error(exc: BaseException, release_root: str = "") -> None:
    """Print an error that nothing caught, to standard error, for the author of the task.

    It begins at the task's own code, and files are named as in the release, if one is given. A task's own
    `sys.excepthook` is called instead, with the frames that would be printed.
    """
    first = exc.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    is_ours = first is None and not isinstance(exc, SyntaxError)  # that may be of the script as a whole
    if is_ours or os.environ.get(WHOLE_VARIABLE):
        first = exc.__traceback__
    elif sys.excepthook is sys.__excepthook__:
        from traceback import TracebackException  # late: most tasks succeed

        text = TracebackException.from_exception(exc.with_traceback(first))
        for part in _parts(text):
            _shorten(part, release_root.rstrip(os.sep) + os.sep)
        sys.stderr.write("".join(text.format()))
        return
    sys.excepthook(type(exc), exc, first)


def _parts(text: TracebackException) -> Iterator[TracebackException]:
    """The error, and the errors that it is linked to or consists of."""
    left = [text]
    while left:
        part = left.pop()
        yield part
        linked = (part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ()))
        left += [error for error in linked if error is not None]


def _shorten(part: TracebackException, folder: str) -> None:
    for frame in part.stack:  # their lines of code were read by their full names
        frame.filename = frame.filename.removeprefix(folder)
    if isinstance(name := getattr(part, "filename", None), str):  # of a syntax error
        part.filename = name.removeprefix(folder)
