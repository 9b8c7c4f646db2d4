"""Small durable steps on a local file system. POSIX only; calls that only Linux has are optional."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from blobsync.errors import LocalStoreError

LOCKED_AT_MOST_S = 30.0
READ_ONLY, READ_ONLY_EXECUTABLE, FOLDER, SEALED_FOLDER = 0o444, 0o555, 0o755, 0o555

_BUFFER_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_POLL_S = 0.01
_SYNC_FILE_RANGE_WRITE = 2
_FALLOC_FL_KEEP_SIZE = 1
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
UNREADABLE = frozenset({errno.EACCES, errno.EIO, errno.EPERM, errno.ELOOP, errno.EUCLEAN, errno.EBADMSG})
"""Errors of a file that cannot be read, as on a bad sector or (EUCLEAN, EBADMSG) in a damaged file system.
Such a file counts as damaged."""


class FileIdentity(NamedTuple):
    """Data that change when a file is written or replaced normally. Without ctime: links change it."""

    size_bytes: int
    mtime_ns: int
    inode: int


def identity(stat: os.stat_result) -> FileIdentity:
    """Identity of a file, from its `stat` result."""
    return FileIdentity(stat.st_size, stat.st_mtime_ns, stat.st_ino)


def regular(path: str | Path) -> os.stat_result | None:
    """`lstat` of a regular file; None: it does not exist, or is no regular file."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a file for reading; yields its descriptor. The kernel refuses a link."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def fsync_folder(path: Path) -> None:
    """Flush the names that were made, moved or removed in a folder to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder durably, with its parent folders. Safe to repeat."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=FOLDER, exist_ok=True)
        fsync_folder(path.parent)


def replace_file(path: Path, data: bytes, part: Path, *, flush: bool = False) -> None:
    """Write a small file anew. If this fails, the old file is unchanged, and `part` does not exist.

    `part` is a path on the same file system. `flush` flushes the content, which a power cut may lose
    otherwise. The name is not flushed.
    """
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write_new(folder: int, path: str, data: memoryview, mode: int) -> FileIdentity:
    """Write a new small file below an open folder. Does not flush it."""
    fd = os.open(path, _NEW_FILE, mode, dir_fd=folder)
    try:
        left = data
        while left:
            left = left[os.write(fd, left) :]
        stat = os.fstat(fd)
        if stat.st_mode & 0o777 != mode:  # a umask
            os.fchmod(fd, mode)
        return identity(stat)
    finally:
        os.close(fd)


def link(source: str, source_folder: int | None, path: str, folder: int) -> os.stat_result | None:
    """Hard-link a file to a path below an open folder. None: it does not exist, or can have no more links."""
    try:
        os.link(source, path, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return os.stat(path, dir_fd=folder, follow_symlinks=False)


def write_new_large(target: Path, data: Iterable[bytes], mode: int) -> FileIdentity:
    """Write a new large file. Does not flush it."""
    with os.fdopen(os.open(target, _NEW_FILE, mode), "wb") as file:
        for piece in data:
            file.write(piece)
        file.flush()
        os.fchmod(file.fileno(), mode)
        return identity(os.fstat(file.fileno()))


def remove_tree(path: Path) -> None:
    """Remove a folder with its content, also sealed folders. Links are not followed. It need not exist."""
    with contextlib.suppress(FileNotFoundError):
        path.chmod(FOLDER)
        for folder, names, _ in os.walk(path):
            for name in names:
                below = Path(folder, name)
                if not below.is_symlink():
                    below.chmod(FOLDER)
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path, at_most_s: float | None = None) -> Iterator[None]:
    """Hold the lock file `path` exclusively among threads and processes of this host. Waits for it.

    Hold it only for moments: do not fetch or hash meanwhile. The kernel releases it when the process ends.
    LocalStoreError after `at_most_s` seconds (0: try once; None: `LOCKED_AT_MOST_S`).
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        limit_s = LOCKED_AT_MOST_S if at_most_s is None else max(at_most_s, 0)
        until_s = time.monotonic() + limit_s
        while not _try_to_lock(fd):
            if time.monotonic() >= until_s:
                raise LocalStoreError(
                    f"another process has locked {path}; waited {limit_s:.3g} s. If that stays so, it is "
                    f"stopped, hangs or has a slow disk: find it (`fuser {path}`), and continue or end it"
                )
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)


def _try_to_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_bytes(path: Path) -> int:
    """Free bytes for this user on the file system of `path`."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def start_writing(fd: int, start: int, size_bytes: int) -> None:
    """Start writing a range to the disk without waiting, so that a later fsync has little to do.

    A hint: if the write fails, the fsync fails.
    """
    if _sync_file_range is not None:
        _sync_file_range(fd, start, size_bytes, _SYNC_FILE_RANGE_WRITE)


def reserve(fd: int, size_bytes: int) -> None:
    """Reserve space for a file that will have that size; its length does not change.

    Does nothing if the file system does not support it. OSError if the disk or the quota is full.
    """
    if _fallocate is not None and _fallocate(fd, _FALLOC_FL_KEEP_SIZE, 0, size_bytes) != 0:
        failed = ctypes.get_errno()
        if failed in NO_ROOM:
            raise OSError(failed, os.strerror(failed))


def sync_file_system(fd: int) -> bool:
    """Flush everything written so far on the whole file system of `fd`.

    False: this system does not support it; fsync each file. OSError: data that were written since `fd` was
    opened are lost.
    """
    if _syncfs is None:
        return False
    if _syncfs(fd) != 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
    return True


def _library_call(name: str, *arguments: type) -> Callable[..., int] | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return None
    call.argtypes, call.restype = arguments, ctypes.c_int
    return call  # type: ignore[no-any-return]


_sync_file_range = _library_call(
    "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
)
_fallocate = _library_call("fallocate64", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_syncfs = _library_call("syncfs", ctypes.c_int)


class FileReader:
    """Reads an open file; see `blobsync.bucket.verification.Reader`. OSError passes through.

    It reads into a buffer, not by mmap: a bad sector or a truncation of a mapped file kills the process.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pieces(self, start: int, size_bytes: int) -> Iterator[memoryview]:
        """See `Reader`."""
        view, at, end = memoryview(bytearray(min(_BUFFER_BYTES, size_bytes))), start, start + size_bytes
        while at < end:
            got = os.preadv(self._fd, [view[: end - at]], at)
            if not got:
                return
            yield view[:got]
            at += got

    def whole(self, start: int, size_bytes: int) -> bytes:
        """See `Reader`."""
        return os.pread(self._fd, size_bytes, start)
