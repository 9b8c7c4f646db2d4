"""The shared parts of an opened local store: session, index, state of the disk, small durable writes."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

from blobsync.errors import BlobMissingError
from blobsync.local.disk import (
    READ_ONLY,
    UNREADABLE,
    fsync_folder,
    locked,
    make_folder,
    opened,
    remove_tree,
    replace_file,
)
from blobsync.local.disk_state import DiskHealth
from blobsync.local.index import VerifiedIndex
from blobsync.log import LazyLog

_log = LazyLog(__name__)

Step = Callable[[str], None]
"""Called before each step, with its name: for fault injection."""

FOLDERS = ("packs", "blobs", "releases", "trees", "partial", "quarantine", "sessions")

_ASKED_BYTES = 4096
_QUARANTINED_NAME_BYTES = 200
"""A file of a tree may have a name of 255 bytes, which leaves no room for the time."""
_QUARANTINED_FILES = 20
_QUARANTINED_BYTES = 1 << 30
"""Limits of the quarantine: the newest damaged files are kept so that people can examine them."""


class StoreSession:
    """The files of one opened store in one process: unfinished files, and the list of releases it needs.

    A session is alive while its lock file is locked; the kernel releases the lock when the process ends in
    any way. The next process that opens the store removes the files of dead sessions. Thread-safe.
    """

    def __init__(self, folder: Path, lock: Path) -> None:
        self._store_lock = lock
        self._folder = folder
        self._own = folder / os.urandom(16).hex()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        with locked(lock):  # so that no other process sees the session before it is locked
            dead = [path for path in folder.iterdir() if not _alive(path)]
            make_folder(self._own)
            self._fd: int | None = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            trash: list[Path] = []
            for path in dead:  # its user may be closing it now; or it belongs to another user, who removes it
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    trash.append(path.rename(self.new_path()))
        try:
            fsync_folder(folder)
            for path in trash:  # outside of the lock: a tree may be in it
                remove_tree(path)
        except BaseException:
            self.close()
            raise

    def new_path(self) -> Path:
        """A new path for an unfinished file or folder of this session."""
        return self._own / f"part-{next(self._numbers)}"

    def hold(self, releases: Set[str], at_most_s: float | None = None) -> None:
        """Protect releases, by manifest digest, when this call returns. Replaces those of the last call.

        While the manifest of one of them is not here, no blob is collected: it may need any of them.
        """
        data = json.dumps(sorted(releases)).encode()
        with locked(self._store_lock, at_most_s):
            replace_file(self._own / "holds.json", data, self.new_path(), flush=True)

    def all_holds(self) -> frozenset[str] | None:
        """Releases that live sessions, with this one, protect. None: the list of a session cannot be read.

        The caller must hold the store's lock.
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
        """End the session, and remove its unfinished files."""
        with self._lock:
            if self._fd is None:
                return
            remove_tree(self._own)
            os.close(self._fd)
            self._fd = None


@dataclass(frozen=True)
class StoreContext:
    """One opened store. Thread-safe."""

    root: Path
    session: StoreSession
    index: VerifiedIndex
    disk: DiskHealth
    step: Step
    _flushed: set[Path] = field(init=False, repr=False, compare=False, default_factory=set)

    @property
    def lock_file(self) -> Path:
        """Locked for moments: to change which releases are protected from collection, and to collect."""
        return self.root / "LOCK"

    def place(self, path: Path) -> str:
        """A path relative to the root, as stored in the index."""
        return path.relative_to(self.root).as_posix()

    def make_folder(self, path: Path) -> None:
        """Make a folder durably. Safe to repeat. OSError passes through.

        An existing folder may have been made by a process that was killed before it flushed the parent. Then
        a power cut would remove the folder and all files below it. So each process flushes the parent once.
        """
        if path not in self._flushed or not path.is_dir():
            make_folder(path)
            fsync_folder(path.parent)
            self._flushed.add(path)

    def install_document(self, path: Path, data: bytes) -> None:
        """Write a small file durably. A crash at any step leaves either the old file or this one.

        After an OSError the old file is unchanged.
        """
        self.make_folder(path.parent)
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
        """If the last write failed, try a small write, to see whether the disk works again. Never raises."""
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

    @contextlib.contextmanager
    def reading(self, path: Path) -> Iterator[int]:
        """Open a file of the store for reading; yields its descriptor. Only reads belong into the `with`.

        A file that cannot be read, as on a bad sector, is damaged: it goes to quarantine. BlobMissingError if
        there is no such file, or it cannot be read.
        """
        try:
            with opened(path) as fd:
                yield fd
        except FileNotFoundError as exc:
            raise BlobMissingError(f"{path} is not here any more; sync its release again") from exc
        except OSError as exc:
            if exc.errno not in UNREADABLE:
                raise
            self.quarantine(path, f"it cannot be read: {exc}")
            raise BlobMissingError(
                f"{path} cannot be read ({exc}), so it is in quarantine now; check that the disk is sound "
                f"(`dmesg`), and sync its release again"
            ) from exc

    def quarantine(self, path: Path, reason: str) -> None:
        """Move a damaged file to quarantine, so that it does not count any more and is fetched again."""
        self.index.forget(self.place(path))
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            # Opened before the move: on a disk that refuses every call, files are not damaged, and stay.
            with opened(path.parent) as folder:
                # Changes the time of the file, so that its hard links in trees are verified again, too.
                with contextlib.suppress(PermissionError):
                    os.utime(path, follow_symlinks=False)
                name = os.fsdecode(os.fsencode(path.name)[:_QUARANTINED_NAME_BYTES])
                path.replace(self.root / "quarantine" / f"{name}.{time.time_ns()}")
                os.fsync(folder)
            _log.error("file_quarantined", path=str(path), reason=reason)
            self._limit_quarantine()

    def _limit_quarantine(self) -> None:
        kept_bytes = 0
        folders = sorted((self.root / "quarantine").iterdir(), key=_quarantined_ns, reverse=True)
        for number, path in enumerate(folders):
            with contextlib.suppress(OSError):
                kept_bytes += path.lstat().st_size
                if number >= _QUARANTINED_FILES or (number and kept_bytes > _QUARANTINED_BYTES):
                    path.unlink()


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


def _quarantined_ns(path: Path) -> int:
    stamp = path.name.rpartition(".")[2]
    return int(stamp) if stamp.isdecimal() else 0
