"""What to do about an error of the disk. Pure."""

from __future__ import annotations

import errno
from enum import StrEnum


class DiskCondition(StrEnum):
    """What keeps a disk from taking bytes."""

    OK = "ok"
    FULL = "full"
    READ_ONLY = "read_only"
    DENIED = "denied"
    FAILING = "failing"


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM})

_ADVICE = {
    DiskCondition.FULL: "the disk, or this user's quota, is full; make room (`df -h {0}`, `df -i {0}`)",
    DiskCondition.READ_ONLY: "the file system is read-only; look for errors (`dmesg`), and mount it anew",
    DiskCondition.DENIED: "this user may not: give it back what is below {0} (`ls -l {0}`)",
    DiskCondition.FAILING: "check that the disk is sound (`dmesg`) and has room (`df -h {0}`, `df -i {0}`)",
}


def condition_of(exc: OSError) -> DiskCondition:
    """What an error says of the disk."""
    if exc.errno in NO_ROOM:
        return DiskCondition.FULL
    if exc.errno == errno.EROFS:
        return DiskCondition.READ_ONLY
    return DiskCondition.DENIED if exc.errno in _DENIED else DiskCondition.FAILING


def advice(exc: OSError, folder: object) -> str:
    """What to do about an error of the disk.

    Args:
        exc: As raised.
        folder: Where it was to write.
    """
    return _ADVICE[condition_of(exc)].format(folder)


def disk_error_in(exc: BaseException) -> OSError | None:
    """The error of the disk that another one was raised from, however far; None: there is none."""
    cause = exc.__cause__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause
