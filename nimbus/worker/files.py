"""Atomic writes, create-once files, and safe reads of files that user code wrote.

Any thread may call it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK_BYTES = 1 << 20
_REMOVE_DEADLINE_S = 60.0


def digested(file: BinaryIO, digest: Any) -> Any:
    """Add the rest of a file to a hash, and return that: like `file_digest`, which Python 3.11 has."""
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: its old content or the new one, never a mix. Not synced to disk."""
    part = _part(path, data, sync=False)
    try:
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Create a file that has no reader yet. Needs a third of the system calls of `Path.write_bytes`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def reserve(path: Path, size_bytes: int) -> None:
    """Create a file that occupies disk space, to be removed when the space is needed. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    finally:
        os.close(fd)


def write_once(path: Path, data: bytes) -> bool:
    """Create a file with its content, durably, unless it exists.

    link(2) refuses an existing name, and links a complete file: so exactly one of many writers wins,
    and no reader sees a partial record.

    Returns:
        True if the file now contains `data`; False: another writer was faster.
    """
    part = _part(path, data, sync=True)
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_if_there(path: Path) -> bytes | None:
    """A file's content; None when there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def make_passage(folder: Path) -> None:
    """Create a folder, unless it exists, that other users can traverse but not list."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)


def read_untrusted(path: Path, limit_bytes: int) -> bytes | None:
    """Read a file that user code may have written; None: no regular file of at most that size can be read.

    A link is not followed, and a pipe does not block. The parent folders must be our own.
    """
    try:
        with open_untrusted(path) as file:
            data = file.read(limit_bytes + 1)
    except (OSError, ValueError):  # ValueError: an invalid name, such as one with a zero byte
        return None
    return data if len(data) <= limit_bytes else None


def open_untrusted(path: Path) -> BinaryIO:
    """Open a file for `read_untrusted`, or to read it in parts.

    Raises:
        OSError: it is missing, or not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(fd, "rb")


def remove_tree(top: Path) -> None:
    """Remove a folder and everything below it, at any depth. Links are not followed.

    Files that cannot be removed within a minute stay.
    """
    with suppress(RecursionError):
        shutil.rmtree(top, ignore_errors=True)
    if os.path.lexists(top):  # too deep for Python's recursion or the limit of descriptors
        import subprocess  # only here: drivers import this module, too

        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["rm", "-rf", "--", str(top)],  # noqa: S607 - its path differs between systems
                env={"PATH": os.environ.get("PATH", os.defpath)},  # ours may hold credentials
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_REMOVE_DEADLINE_S,
                check=False,
            )


def _part(path: Path, data: bytes, *, sync: bool) -> Path:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(fd, "wb") as part:
            part.write(data)
            part.flush()
            if sync:
                os.fsync(part.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
