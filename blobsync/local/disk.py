"""Small durable steps on a local file system. POSIX only."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from blobsync.errors import LocalStoreError
from blobsync.storage.ports import CHUNK_BYTES

READ_ONLY, READ_ONLY_EXECUTABLE, FOLDER, SEALED_FOLDER = 0o444, 0o555, 0o755, 0o555


class FileIdentity(NamedTuple):
    """What changes when a file is written or replaced by ordinary means. Not its ctime: links change it."""

    size_bytes: int
    mtime_ns: int
    inode: int


def identity(found: os.stat_result) -> FileIdentity:
    """Identity of a file that was looked at."""
    return FileIdentity(found.st_size, found.st_mtime_ns, found.st_ino)


def regular(path: Path) -> os.stat_result | None:
    """Look at a regular file, links not followed; None: it is missing or something else."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def hash_file(path: Path, going_on: Callable[[], None] = lambda: None) -> tuple[str, FileIdentity]:
    """SHA-256 of a file as it is on the disk, and which file that was.

    Args:
        path: A regular file; a link is refused by the system.
        going_on: Called for each chunk; raises to stop.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        before = identity(os.fstat(fd))
        os.posix_fadvise(
            fd, 0, 0, os.POSIX_FADV_DONTNEED
        )  # the disk is asked, not what memory remembers of it
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK_BYTES):
            going_on()
            digest.update(chunk)
        after = identity(os.fstat(fd))
    # Written to meanwhile: the empty digest is nobody's.
    return (digest.hexdigest() if before == after else ""), after


def fsync_folder(path: Path) -> None:
    """Put names that were made, moved or removed in a folder on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder durably. Safe to repeat."""
    if not path.is_dir():
        path.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        fsync_folder(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it, sealed folders too. Links are removed, not followed. Missing is fine."""
    with contextlib.suppress(FileNotFoundError):
        path.chmod(FOLDER)
        for folder, names, _ in os.walk(path):
            for name in names:
                below = Path(folder, name)
                if not below.is_symlink():
                    below.chmod(FOLDER)
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` exclusively among threads and processes of this host. Waits for it.

    For moments only: nothing is fetched or hashed meanwhile. It ends with the process.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Tell what failed on the disk, in our words."""
    try:
        yield
    except OSError as exc:
        raise LocalStoreError(
            f"{what} failed: {exc}; check that the disk has room (`df -h`, `df -i`), is not read-only, and "
            f"that this user may write there. It is tried again; what was there is unharmed"
        ) from exc
