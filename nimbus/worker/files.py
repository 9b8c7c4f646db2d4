"""Files that are there whole or not at all, and slots that only the first writer fills. Any thread."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: its old content or the new one, never a mix. Not synced to disk."""
    part = _part(path, data, sync=False)
    try:
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_once(path: Path, data: bytes) -> bool:
    """Create a file with its content, durably, unless it is there.

    link(2) refuses a name that exists, and what it names is complete: so of many writers exactly one wins,
    and nobody ever reads a half-written record.

    Returns:
        Whether `data` is what stands there now; False: somebody was faster.
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


def read_small(path: Path, most_bytes: int) -> bytes:
    """Read a file that user code may have made; empty if it is no regular file, too large, or not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(fd)
        is_small = stat.S_ISREG(found.st_mode) and found.st_size <= most_bytes
        return os.read(fd, most_bytes) if is_small else b""
    finally:
        os.close(fd)


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
