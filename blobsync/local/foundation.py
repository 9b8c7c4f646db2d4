"""What all parts of one opened local store stand on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from blobsync.local.disk import READ_ONLY, Folders, fsync_folder
from blobsync.local.disk_state import DiskHealth
from blobsync.local.index import VerifiedIndex
from blobsync.local.session import StoreSession
from blobsync.log import Log

_log = Log(__name__)

Step = Callable[[str], None]
"""Called with the name of a step before it is made: for fault injection."""

FOLDERS = ("packs", "blobs", "releases", "trees", "partial", "quarantine", "sessions")

_ASKED_BYTES = 4096
_QUARANTINED_FILES = 20
_QUARANTINED_BYTES = 1 << 30
"""Of what was found damaged, the newest are kept for people to look at, up to that many."""


@dataclass(frozen=True)
class Foundation:
    """One opened store.

    Args:
        root: Its folder.
        session: What this user has to itself.
        index: Which files were verified.
        disk: How the disk does.
        step: See `Step`.
        folders: Makes them.
    """

    root: Path
    session: StoreSession
    index: VerifiedIndex
    disk: DiskHealth
    step: Step
    folders: Folders = field(default_factory=Folders)

    @property
    def lock_file(self) -> Path:
        """Held for moments, by whoever changes what is protected from collection, or collects."""
        return self.root / "LOCK"

    def place(self, path: Path) -> str:
        """A path as the index has it."""
        return path.relative_to(self.root).as_posix()

    def install_document(self, path: Path, data: bytes) -> None:
        """Write a small file durably: afterwards, the old one is there or this one, whatever dies when.

        Raises:
            OSError: the disk failed; the old one is there.
        """
        self.folders.make(path.parent)
        part = self.session.new_path()
        try:
            self.step("document-write")
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(fd, READ_ONLY)
                self.step("document-fsync")
                os.fsync(fd)
            self.step("document-rename")
            part.replace(path)
            self.step("document-fsync-folder")
            fsync_folder(path.parent)
            self.disk.wrote()
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def ask_disk(self) -> None:
        """If the disk refused to write at last, find out whether it still does. No error is raised."""
        if self.disk.state.ok:
            return
        part = self.session.new_path()
        with contextlib.suppress(OSError):
            if not self.disk.has_room():
                return
            self.step("ask-disk")
            with part.open("xb") as file:
                file.write(b"\0" * _ASKED_BYTES)
                file.flush()
                os.fsync(file.fileno())
            self.disk.wrote()
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)

    def quarantine(self, path: Path, reason: str) -> None:
        """Move a damaged file out of the way, so that it counts no more, and a new one may come."""
        self.index.forget(self.place(path))
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            # Other names of the same file, in trees, shall be looked at again too.
            with contextlib.suppress(PermissionError):
                os.utime(path, follow_symlinks=False)
            path.replace(self.root / "quarantine" / f"{path.name}.{time.time_ns()}")
            fsync_folder(path.parent)
            _log.error("file_quarantined", path=str(path), reason=reason)
            self._limit_quarantine()

    def _limit_quarantine(self) -> None:
        kept_bytes = 0
        found = sorted((self.root / "quarantine").iterdir(), key=_quarantined_ns, reverse=True)
        for number, path in enumerate(found):
            with contextlib.suppress(OSError):
                kept_bytes += path.lstat().st_size
                if number >= _QUARANTINED_FILES or (number and kept_bytes > _QUARANTINED_BYTES):
                    path.unlink()


def _quarantined_ns(path: Path) -> int:
    stamp = path.name.rpartition(".")[2]
    return int(stamp) if stamp.isdecimal() else 0
