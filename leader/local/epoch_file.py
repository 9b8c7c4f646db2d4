"""Epochs of a single node that outlive its process, and a lock that keeps a second one out."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from leader.errors import ElectionConfigError, ElectionStateError, RecordError


class EpochFile:
    """The highest epoch ever taken, in a file. Whoever holds it locked is the only one that may raise it.

    The lock is the kernel's (flock), on a file beside it: it ends with the process, however that dies. It
    holds on one machine; do not put the file on a network file system and rely on it.

    Args:
        path: Of the file; it is made when first used. Its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise ElectionConfigError(f"the folder of the epoch file {path} does not exist; make it")
        self._path = path
        self._lock_fd: int | None = None

    def lock(self) -> int:
        """Keep everybody else out, until `unlock`.

        Returns:
            The highest epoch so far; 0 if there was none.

        Raises:
            ElectionStateError: Another process holds it.
            RecordError: The file holds something else.
        """
        lock_path = self._path.with_name(f"{self._path.name}.lock")
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(fd)
            raise ElectionStateError(
                f"another process leads by {self._path}: it holds {lock_path} locked. End it, or give this "
                f"one a file of its own"
            ) from exc
        self._lock_fd = fd
        try:
            return self._read()
        except (OSError, RecordError):
            self.unlock()
            raise

    def unlock(self) -> None:
        """Let others in. Safe to repeat."""
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def raise_to(self, epoch: int) -> None:
        """Put `epoch` on disk for good: old file or new, never a mix. OSError if it cannot be written."""
        fd, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(fd, "wb") as part:
                part.write(f"{epoch}\n".encode())
                part.flush()
                os.fsync(part.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self) -> int:
        try:
            text = self._path.read_text("ascii").strip()
        except FileNotFoundError:
            return 0
        except UnicodeDecodeError:
            text = "bytes that are no text"
        if not text.isdecimal():
            raise RecordError(
                f"{self._path} holds {text[:40]!r}, wanted an epoch number. Write one above every epoch that "
                f"was ever used"
            )
        return int(text)
