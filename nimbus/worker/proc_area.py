"""What /proc shows of a forked process: arguments and environment, which it shares with its parent at first.

Attempts, stacks and tests find their processes by a variable in the environment that /proc shows. The kernel
shows the memory in which a program was started, so a forked process writes there, as `setproctitle` does.
The starter of a program that forks gives it `ROOM`, and `ARGUMENT_ROOM` if its own arguments are short.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

ROOM = {"NIMBUS_ROOM": " " * 8192}
"""Goes into the environment of a program that forks: as much as a child's may need."""

ARGUMENT_ROOM = " " * 256
"""The last argument of a program that forks."""

_PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)
_FIRST_FIELD = 45
"""Of /proc/self/stat, after the command's name: start and end of the arguments, then of the environment."""


def make_room() -> bool:
    """Let forks of this process `show_as` what they are. Safe to repeat.

    The C library's environment lies where the kernel shows it at first; it is copied to elsewhere.

    Returns:
        Whether this process was started with room for what its children show.
    """
    for variable, value in os.environ.items():
        os.environ[variable] = value
    _, _, start, end = _bounds()
    return end - start >= len(ROOM["NIMBUS_ROOM"])


def show_as(
    name: str, arguments: Iterable[str], environment: Mapping[str, str], hidden: Collection[str] = ()
) -> None:
    """Replace the environment of this process, and what /proc shows of it. Its parent has made room.

    Args:
        name: For `ps`; the kernel keeps 15 bytes.
        arguments: Cut off where the room ends.
        environment: All of it. Of variables that find no room in /proc, those of Nimbus are the last.
        hidden: Variables that are not shown.
    """
    wanted = {os.fsencode(variable): os.fsencode(value) for variable, value in environment.items()}
    for variable in os.environb.keys() - wanted.keys():
        del os.environb[variable]
    for variable, value in wanted.items():
        if os.environb.get(variable) != value:  # what is written is copied, in a forked process
            os.environb[variable] = value
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    arguments_start, arguments_end, start, end = _bounds()
    _overwrite(arguments_start, arguments_end, [os.fsencode(word) for word in arguments])
    ours_first = sorted(wanted.items(), key=lambda item: not item[0].startswith(b"NIMBUS_"))
    unshown = {os.fsencode(variable) for variable in hidden}
    _overwrite(start, end, [b"=".join(item) for item in ours_first if item[0] not in unshown])


@cache
def _bounds() -> tuple[int, int, int, int]:
    """Where the arguments and the environment are; the same in all forks of a process."""
    text = Path("/proc/self/stat").read_bytes()
    fields = text[text.rindex(b")") + 2 :].split()
    start, middle, environment, end = (int(field) for field in fields[_FIRST_FIELD : _FIRST_FIELD + 4])
    return start, middle, environment, end


def _overwrite(start: int, end: int, words: Iterable[bytes]) -> None:
    size = end - start
    if size > 0:
        # The last byte stays NUL: the kernel takes another one as a sign that the text goes on.
        ctypes.memmove(start, b"".join(word + b"\0" for word in words)[: size - 1].ljust(size, b"\0"), size)
