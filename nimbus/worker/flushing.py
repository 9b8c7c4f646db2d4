"""Flushes a finished tree to the disk: an output before its END, or a copy of an input.

The cost depends on the attempt's own files, not on other dirty data of the file system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Callable

Fsync = Callable[[int], None]

_AT_ONCE = 8
"""Files in parallel, which a journal commits together. 400 files took 0.1 s, and 1.2 s one by one."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 100
"""Deepest nesting of folders: each level needs a descriptor, and a task may nest any number."""
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""Errors of file systems that cannot flush this kind of file: some network file systems, for folders."""


def flush_above(
    top: Path, root: Path, *, fsync: Fsync = os.fsync, flushed: Container[Path] = frozenset()
) -> None:
    """Flush the folders from the last but one above `top` up to `root`.

    It ends with the first one that is in `flushed`: those above it do not change.

    Raises:
        OSError: a folder is missing or cannot be opened or flushed; `filename` names it.
    """
    for above in top.parents[1 : len(top.relative_to(root).parts)]:
        _flush(fsync, above, os.O_DIRECTORY, str(above))
        if above in flushed:
            return


def flush_tree(top: Path, *, fsync: Fsync = os.fsync) -> None:
    """Flush all regular files and folders of a tree, and its parent folder, because a task may replace `top`.

    Symbolic links are not followed.

    Raises:
        OSError: a file or folder is missing or cannot be opened or flushed, or folders are nested too deep;
            `filename` names it.
    """
    if not top.is_symlink():
        with ExitStack() as closing:
            _Flush(fsync, closing).folder(str(top), str(top), None, _DEEPEST)
    _flush(fsync, top.parent, os.O_DIRECTORY, str(top.parent))


class _Flush:
    """Walks a tree by descriptors of its folders, so that a renamed or replaced folder is not followed."""

    def __init__(self, fsync: Fsync, closing: ExitStack) -> None:
        self._fsync, self._closing = fsync, closing

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return self._closing.enter_context(ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="runner-flush"))

    def folder(self, name: str, path: str, above: int | None, levels: int) -> None:
        """Flush a folder: its files, then its subfolders, then itself."""
        if levels == 0:
            raise OSError(errno.ELOOP, f"folders are nested deeper than {_DEEPEST}", path)
        with _naming(path, but=frozenset()):
            fd = os.open(name, _READ | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            with _naming(path, but=frozenset()), os.scandir(fd) as found:
                entries = list(found)
            files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            flush = map if len(files) < 2 else self._pool.map
            for _ in flush(partial(self._file, fd, path), files):
                pass  # the first error is raised here
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.folder(entry.name, f"{path}/{entry.name}", fd, levels - 1)
            with _naming(path):
                self._fsync(fd)
        finally:
            os.close(fd)

    def _file(self, folder: int, place: str, name: str) -> None:
        _flush(self._fsync, name, os.O_NOFOLLOW, f"{place}/{name}", folder)


def _flush(fsync: Fsync, name: str | Path, flags: int, path: str, folder: int | None = None) -> None:
    with _naming(path):
        fd = os.open(name, _READ | flags, dir_fd=folder)
        try:
            fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _naming(path: str, but: frozenset[int] = _NOT_OFFERED) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno not in but:
            raise OSError(exc.errno, exc.strerror, path) from exc
