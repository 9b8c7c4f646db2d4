"""Brings a successful attempt's output to the disk before its END is written: END is the commit.

Called on a runner's main thread once the driver and all that it started are dead, so nobody writes any more.
The cost grows with the attempt's own files, not with what else the file system has to write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from nimbus.domain.failures import FailureClass
from nimbus.domain.run import Outcome
from nimbus.worker.verdict import Verdict

Fsync = Callable[[int], None]

_AT_ONCE = 8
"""Files at a time: a journal takes them together. 400 files took 0.1 s, and 1.2 s one after the other."""
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""What a file system answers that cannot flush this kind of file: some network ones and folders."""


def flushed(verdict: Verdict, output: Path, data_dir: Path, *, fsync: Fsync = os.fsync) -> Verdict:
    """Flush the output of a success. A success that is not on the disk is a failure."""
    if verdict.outcome is not Outcome.SUCCEEDED:
        return verdict
    try:
        flush_tree(output, data_dir, fsync=fsync)
    except OSError as exc:
        why = f"its output could not be flushed to the disk: {exc.strerror}: {exc.filename}"
        return Verdict(Outcome.FAILED, why, verdict.exit_code, FailureClass.ERROR)
    return verdict


def flush_tree(top: Path, root: Path, *, fsync: Fsync = os.fsync) -> None:
    """Flush all regular files and folders of a tree, and the folders from `root` down to it.

    Symbolic links are not followed: what they lead to is no part of the tree.

    Raises:
        OSError: a file or folder is not there or cannot be opened or flushed; `filename` says which.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="runner-flush") as pool:
        for place, _, names, folder in os.fwalk(top, onerror=_raise):
            for _ in pool.map(partial(_flush_file, fsync, folder, place), names):
                pass  # the first error is raised here
            with _naming(place):
                fsync(folder)
    for above in top.parents[: len(top.relative_to(root).parts)]:
        _flush(fsync, above, os.O_DIRECTORY, str(above))


def _flush_file(fsync: Fsync, folder: int, place: str, name: str) -> None:
    path = f"{place}/{name}"
    with _naming(path):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISREG(mode):
        _flush(fsync, name, os.O_NOFOLLOW, path, folder)


def _flush(fsync: Fsync, name: str | Path, flags: int, path: str, folder: int | None = None) -> None:
    with _naming(path):
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
        try:
            fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno not in _NOT_OFFERED:
            raise OSError(exc.errno, exc.strerror, path) from exc


def _raise(error: OSError) -> NoReturn:
    raise error
