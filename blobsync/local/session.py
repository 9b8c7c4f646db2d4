"""What one user of a local store has to itself there: unfinished files, and a list of what it needs.

A session is alive as long as its lock file is locked, which ends with its process, however that ends. What a
dead session left is removed by the next that opens the store. Thread-safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import threading
from collections.abc import Iterator, Set
from pathlib import Path

from blobsync.local.disk import fsync_folder, locked, make_folder, remove_tree


class StoreSession:
    """One opened local store.

    Args:
        folder: Where sessions are.
        lock: The store's lock file.
    """

    def __init__(self, folder: Path, lock: Path) -> None:
        self._store_lock = lock
        self._folder = folder
        self._own = folder / os.urandom(16).hex()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        with locked(lock):  # so that nobody sees a session before it is locked
            self._sweep()
            make_folder(self._own)
            self._fd: int | None = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def new_path(self) -> Path:
        """A name for an unfinished file or folder, not taken by anybody."""
        return self._own / f"part-{next(self._numbers)}"

    def hold(self, releases: Set[str]) -> None:
        """Protect releases, by manifest digest, in place of what was held before; from the return on.

        While one of them is not known here, no blob is collected: any might be of it.
        """
        part = self.new_path()
        with locked(self._store_lock):
            try:
                with part.open("w") as file:
                    json.dump(sorted(releases), file)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(self._own / "holds.json")
            except OSError:  # it is tried again and again while the disk is full
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
                raise

    def all_holds(self) -> frozenset[str] | None:
        """Releases that live sessions protect, ours included; None: one of them cannot be read.

        The caller has the store's lock.
        """
        total: frozenset[str] = frozenset()
        for path in self._folder.glob("*/holds.json"):
            if path.parent != self._own and not _alive(path.parent):
                continue
            try:
                total |= frozenset(json.loads(path.read_bytes()))
            except (OSError, ValueError, TypeError):
                return None
        return total

    def close(self) -> None:
        """End the session; its unfinished files go."""
        with self._lock:
            if self._fd is None:
                return
            remove_tree(self._own)
            os.close(self._fd)
            self._fd = None

    def _sweep(self) -> None:
        for path in self._dead():
            remove_tree(path)
        fsync_folder(self._folder)

    def _dead(self) -> Iterator[Path]:
        for path in self._folder.iterdir():
            if not _alive(path):
                yield path


def _alive(session: Path) -> bool:
    try:
        fd = os.open(session / "lock", os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
