"""Prints the error that ends a task: it begins at the task's own code, and names files as the release does.

The log of a task is for its author. So the driver's own frames above the task's are left out, and a file of
the release is `tasks/load.py`, without the folder that the worker keeps the release in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceback import TracebackException

WHOLE_VARIABLE = "NIMBUS_WHOLE_TRACEBACK"
"""With any value in the environment of a task, its error is printed as the interpreter would."""
_OURS = f"{Path(__file__).parents[1]}{os.sep}"


def print_error(exc: BaseException, release_root: str = "") -> None:
    """Print an error that nothing caught, to standard error.

    A task's own `sys.excepthook` is called instead, with the frames that would be printed.

    Args:
        exc: The error.
        release_root: Folder of the release; empty: file names are printed as they are.
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
