"""Changes the arguments and environment that /proc shows for a forked process.

Attempts, stacks and tests find their processes by a variable in the environment that /proc shows. The kernel
shows the memory area that was filled at the program's start, so a forked process overwrites that area, as
`setproctitle` does. A program that forks must be started with the variable `ROOM`, and with `ARGUMENT_ROOM`
if its own arguments are short.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

ROOM = {"NIMBUS_ROOM": " " * 8192}
"""Reserves space in the environment of a program that forks, for the variables of a child."""

ARGUMENT_ROOM = " " * 256
"""Reserves space as the last argument of a program that forks."""

_PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)
_FIRST_FIELD = 45
"""Index in /proc/self/stat after the command's name: bounds of the arguments, then of the environment."""


def make_room() -> bool:
    """Prepare this process so that its forks can call `show_as`. Safe to repeat.

    The C library's environment is at first in the area that the kernel shows; it is copied to other memory.

    Returns:
        True if this process was started with the reserved space.
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


@cache
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
