"""A disk that loses power: any combination of unflushed data may be lost. Not a test.

A forked process works below a folder, and dies before one of its calls that change files. It records which
data a disk must still have then: the bytes of each file at its last fsync, and the names in each folder at
that folder's last fsync; or everything, after a syncfs. The test then changes the folder to a state that is
possible after a power cut. Each name that was not flushed gets its old or its new state, at random. Each file
with unflushed bytes gets the old bytes, the new ones, a part of these, or zeros. Files and folders keep their
inodes and times, so that no code can tell them from the originals.
"""

from __future__ import annotations

import errno
import os
import pickle
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blobsync.local import disk

DIED, ENDED = 7, 0
Names = dict[str, int]


@dataclass
class Kept:
    """The flushed data of a disk, by inode. Everything else may be lost.

    Attributes:
        calls: Number of calls so far.
    """

    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, Names] = field(default_factory=dict)
    calls: int = 0


class Recorder:
    """Intercepts calls of `os` in a separate process.

    Args:
        top: The disk.
        aside: A folder of the same file system, which keeps removed files, so that no inode is used twice.
        dies_at: Number of the call before which the process dies.
        fsyncs: Whether the disk flushes on fsync; if not, fsync of a file reports success without flushing.
    """

    def __init__(self, top: Path, aside: Path, dies_at: int, *, fsyncs: bool) -> None:
        self._top, self._aside, self._dies_at, self._fsyncs = top, aside, dies_at, fsyncs
        self.kept = Kept()

    def install(self) -> None:
        """Intercept the calls until the process ends."""
        for name in ("open", "write", "pwrite", "ftruncate", "mkdir", "link", "chmod", "fchmod"):
            self._replace(name, lambda call, *args, **options: call(*args, **options))
        self._replace("unlink", self._unlink)
        self._replace("rmdir", self._rmdir)
        self._replace("rename", self._rename)
        self._replace("replace", self._rename)
        self._replace("fsync", self._fsync)
        self._replace("fdatasync", self._fsync)
        if disk._syncfs is not None:
            disk._syncfs = self._syncfs

    def die(self) -> None:
        """Write the record and end the process: at the chosen call, or at the end of the work."""
        (self._aside / "kept").write_bytes(pickle.dumps(self.kept))

    def _replace(self, name: str, instead: Callable[..., Any]) -> None:
        call = getattr(os, name)

        def replaced(*args: Any, **options: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                self._count()
            return instead(call, *args, **options)

        setattr(os, name, replaced)

    def _count(self) -> None:
        if self.kept.calls == self._dies_at:
            self._dies_at = -1
            self.die()
            os._exit(DIED)
        self.kept.calls += 1

    def _unlink(self, call: Callable[..., Any], path: Any, *, dir_fd: int | None = None) -> None:
        self._save(_place(path, dir_fd))
        call(path, dir_fd=dir_fd)

    def _rename(self, call: Callable[..., Any], source: Any, target: Any) -> None:
        self._save(os.fspath(target))
        call(source, target)

    def _rmdir(self, _call: Callable[..., Any], path: Any, *, dir_fd: int | None = None) -> None:
        place = _place(path, dir_fd)
        if names(place):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), place)
        _RENAME(place, self._aside / f"folder-{os.lstat(place).st_ino}")

    def _save(self, place: str) -> None:
        if os.path.lexists(place) and not Path(place).is_dir():
            save(place, self._aside)

    def _fsync(self, call: Callable[..., Any], fd: int) -> None:
        call(fd)
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            self.kept.folders[found.st_ino] = names(f"/proc/self/fd/{fd}")
        elif self._fsyncs:
            self.kept.files[found.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def _syncfs(self, _fd: int) -> int:
        self._count()
        for folder, _, files in os.walk(self._top):
            self.kept.folders[os.lstat(folder).st_ino] = names(folder)
            for name in files if self._fsyncs else ():
                path = Path(folder, name)
                self.kept.files[path.lstat().st_ino] = path.read_bytes()
        return 0


_RENAME, _LINK = os.rename, os.link


class OnlyWhatIsSure(random.Random):
    """All unflushed data are lost."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, *_args: Any) -> int:
        return 0


def names(folder: str) -> Names:
    """The names in a folder, with their inodes."""
    with os.scandir(folder) as found:
        return {entry.name: entry.stat(follow_symlinks=False).st_ino for entry in found}


def save(place: str | Path, aside: Path) -> None:
    """Save the bytes of a file."""
    saved = aside / f"file-{os.lstat(place).st_ino}"
    if not saved.exists():
        _LINK(place, saved, follow_symlinks=False)


def _place(path: Any, dir_fd: int | None) -> str:
    return os.fspath(path) if dir_fd is None else f"/proc/self/fd/{dir_fd}/{os.fspath(path)}"


def run(work: Callable[[], None], top: Path, aside: Path, dies_at: int, *, fsyncs: bool = True) -> int:
    """Fork, and work until the call with that number.

    Returns:
        `DIED` or `ENDED`; anything else means an error, which was printed.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            recorder = Recorder(top, aside, dies_at, fsyncs=fsyncs)
            recorder.install()
            work()
            recorder.die()
            code = ENDED
        except BaseException:  # noqa: BLE001 - the test sees the exit code
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def read_kept(aside: Path) -> Kept:
    """What the process recorded."""
    kept: Kept = pickle.loads((aside / "kept").read_bytes())
    return kept


def cut(top: Path, aside: Path, dice: random.Random) -> None:
    """Reduce the disk to a possible state after the power cut."""
    kept = read_kept(aside)
    now: dict[int, Names] = {}
    states: dict[int, os.stat_result] = {}
    for folder, _, files in os.walk(top):
        own = names(folder)
        now[os.lstat(folder).st_ino] = own
        for name in own:
            states[own[name]] = os.lstat(Path(folder, name))
        for name in files:
            save(Path(folder, name), aside)
    for path in aside.glob("folder-*"):
        states[path.stat().st_ino] = path.stat()
    _take_apart(top, aside)
    _build(top, top.stat().st_ino, _Survivors(kept, now, dice), aside, states)
    for path in aside.glob("file-*"):
        _lose_bytes(path, kept.files.get(path.stat().st_ino), dice)


@dataclass
class _Survivors:
    kept: Kept
    now: dict[int, Names]
    dice: random.Random
    placed: set[int] = field(default_factory=set)

    def of(self, folder: int) -> Names:
        """Each name as it was when the folder was flushed, or as it was last."""
        before, after = self.kept.folders.get(folder, {}), self.now.get(folder, {})
        likely = self.dice.choice([0.0, 0.5, 0.9, 1.0])
        found: Names = {}
        for name in sorted({*before, *after}):
            inode = (after if self.dice.random() < likely else before).get(name)
            if inode is not None:
                found[name] = inode
        return found


def _take_apart(top: Path, aside: Path) -> None:
    """Move all folders next to each other, without their files."""
    for folder, folders, files in os.walk(top, topdown=False):
        Path(folder).chmod(0o755)
        for name in files:
            Path(folder, name).unlink()
        for name in folders:
            below = Path(folder, name)
            _RENAME(below, aside / f"folder-{below.stat().st_ino}")


def _build(
    folder: Path, inode: int, survivors: _Survivors, aside: Path, states: dict[int, os.stat_result]
) -> None:
    for name, below in survivors.of(inode).items():
        path, spare = folder / name, aside / f"folder-{below}"
        if (aside / f"file-{below}").exists():
            _LINK(aside / f"file-{below}", path)
        elif below not in survivors.placed and spare.exists():  # a folder can be in one place only
            survivors.placed.add(below)
            spare.chmod(0o755)
            _RENAME(spare, path)
            _build(path, below, survivors, aside, states)
            path.chmod(stat.S_IMODE(states[below].st_mode))
            os.utime(path, ns=(states[below].st_atime_ns, states[below].st_mtime_ns))


def _lose_bytes(path: Path, kept: bytes | None, dice: random.Random) -> None:
    """Keep all, some or none of the unflushed bytes. Size and time of the file do not show it."""
    found, now = path.stat(), path.read_bytes()
    if kept == now:
        return
    part = now[: dice.randrange(len(now) + 1)]
    zeros = now[: len(part)] + bytes(len(now) - len(part))
    choices = [kept or b"", now, part, zeros, bytes(len(now))]
    path.chmod(0o644)
    path.write_bytes(dice.choice(choices))
    path.chmod(stat.S_IMODE(found.st_mode))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
