"""Walks an output without following links, because its content is not trusted.

Threads: `data-transfer_<n>` while files are read or transferred.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NoReturn, TypeVar

from nimbus.worker.data.manifest import OutputFile, OutputManifest
from nimbus.worker.data.ports import OutputRefusedError
from nimbus.worker.host.files import digested

Item = TypeVar("Item")
Done = TypeVar("Done")

_AT_ONCE = 8
_MAX_DEPTH = 100
"""Deepest nesting of folders: each level needs a descriptor during the walk."""


@dataclass(frozen=True)
class FoundFolder:
    """One folder of an output. Its descriptor is valid until the iterator advances."""

    path: str
    """Relative to the output; empty: the output itself."""
    fd: int
    files: tuple[str, ...]
    is_empty: bool

    def path_of(self, name: str) -> str:
        """The path of a file, relative to the output."""
        return f"{self.path}/{name}" if self.path else name

    @contextmanager
    def digested(self, name: str) -> Iterator[tuple[int, OutputFile]]:
        """Open a file and compute its digest. It must not change until the block ends.

        Raises:
            OSError: it is missing, or cannot be read; `filename` names it.
            OutputRefusedError: it is not a regular file any more, or has changed.
        """
        path = self.path_of(name)
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.fd)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise OutputRefusedError(_refusal(path))
            with open(fd, "rb", buffering=0, closefd=False) as file:
                sha256 = digested(file, hashlib.sha256()).hexdigest()
            yield fd, OutputFile(path=path, size_bytes=before.st_size, sha256=sha256)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise OutputRefusedError(f"{path!r} was written to after the task had ended")


def folders_of(top: Path, other: Callable[[str], None] | None = None) -> Iterator[FoundFolder]:
    """All folders of an output: each with its files by name, before its subfolders by name.

    Args:
        top: The output.
        other: Called with the path of each entry that is neither a file nor a folder; None: it is refused.

    Raises:
        OSError: a folder is missing, cannot be read, or is nested too deep; `filename` names it.
        OutputRefusedError: it contains something that is neither a file nor a folder.
    """
    if not stat.S_ISDIR(os.lstat(top).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(top))
    for place, folders, files, fd in os.fwalk(top, onerror=_raise, follow_symlinks=False):
        path = PurePosixPath(place).relative_to(top)
        if len(path.parts) > _MAX_DEPTH:
            raise OSError(errno.ELOOP, f"folders are nested deeper than {_MAX_DEPTH}", place)
        relative = "/".join(path.parts)
        for names, wanted in ((folders, stat.S_ISDIR), (files, stat.S_ISREG)):
            names.sort()
            for name in tuple(names):
                if wanted(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    continue
                if other is None:
                    raise OutputRefusedError(_refusal("/".join((*path.parts, name))))
                other("/".join((*path.parts, name)))
                names.remove(name)  # a link to a folder would be opened
        yield FoundFolder(relative, fd, tuple(files), not files and not folders)


def list_output(
    top: Path, prefix: str, file_of: Callable[[FoundFolder, str], OutputFile], *, max_files: int | None = None
) -> OutputManifest:
    """The manifest of an output, which has at most `max_files` files and empty folders.

    `file_of` reads or transfers a file, several in parallel. Raises as `folders_of` and `file_of`;
    OutputRefusedError for too many files.
    """
    files: list[OutputFile] = []
    folders: list[str] = []
    with transfers() as each:
        for folder in folders_of(top):
            if folder.is_empty and folder.path:
                folders.append(folder.path)
            if max_files is not None and len(files) + len(folders) + len(folder.files) > max_files:
                raise OutputRefusedError(
                    f"it has more than {max_files} files, the limit for an output that is published: write "
                    "fewer, larger files"
                )
            files += each(partial(file_of, folder), folder.files)
    return OutputManifest(prefix=prefix, files=files, folders=folders)


@contextmanager
def transfers() -> Iterator[Callable[[Callable[[Item], Done], Iterable[Item]], list[Done]]]:
    """Run several transfers in parallel. The first error is raised after the running ones have ended."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="data-transfer") as pool:
        yield lambda call, items: list(pool.map(call, items))


def _refusal(path: str) -> str:
    return f"{path!r} is a link or no regular file, which a bucket cannot keep; write a file in its place"


def _raise(error: OSError) -> NoReturn:
    raise error
