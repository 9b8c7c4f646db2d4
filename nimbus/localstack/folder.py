"""What belongs to the stack in one folder: the lock that allows one, its files, the processes with its tag.

Attempts of tasks are detached from their scheduler: they have their own session and parent. But they keep the
environment of their start, with the tag, and all their children inherit it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from nimbus.localstack.errors import ProcessStateError, StackLockedError


class FolderLock:
    """An exclusive lock on a folder, which the kernel drops when its holder dies.

    The file contains the holder's process id, only for the message. The unlocked file stays, because removing
    it would let two processes lock two files of the same name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises StackLockedError: another process, or another stack in this one, has it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._folder / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StackLockedError(folder=self._folder, pid=holder) from exc
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Release the lock. Safe to repeat."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def write_private(file: Path, text: str) -> None:
    """Write a file atomically; only its owner can read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)  # else the mode of an old file would stay
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    part.replace(file)


TAG_VARIABLE = "NIMBUS_STACK"
"""Its value is the absolute path of the stack's folder."""

_SWEEP_S = 0.2
_GIVE_UP_AFTER_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedProcess:
    """A process with the tag of a stack."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} {self.command}"


def tag_of(folder: Path) -> dict[str, str]:
    """The environment variable that marks every process of the stack in `folder`."""
    return {TAG_VARIABLE: str(folder.absolute())}


def tagged_processes(folder: Path, *, but: Collection[int] = ()) -> list[TaggedProcess]:
    """This user's living processes with the tag of `folder`, except this one and those in `but`."""
    processes = []
    for process in _carriers(folder, but):
        try:
            command = " ".join(process.cmdline()) or process.name()
        except psutil.Error:  # ended meanwhile
            continue
        processes.append(TaggedProcess(pid=process.pid, command=command))
    return processes


def end_tagged(
    folder: Path, *, but: Collection[int] = (), patience: timedelta = timedelta(seconds=5)
) -> None:
    """End all processes with the tag of `folder`: SIGTERM, then SIGKILL for those left after `patience`.

    Repeats until none is found, because a dying process may still start another.

    Raises:
        ProcessStateError: a process still exists long after SIGKILL.
    """
    kill_from = time.monotonic() + patience.total_seconds()
    asked: set[psutil.Process] = set()
    while processes := set(_carriers(folder, but)):
        now = time.monotonic()
        if now >= kill_from + _GIVE_UP_AFTER_S:
            pids = ", ".join(str(process.pid) for process in processes)
            raise ProcessStateError(
                f"processes {pids} of the stack in {folder} do not end, even killed; "
                "they probably wait for a disk. Look at them with `ps -o pid,stat,wchan,cmd -p <pid>`"
            )
        out_of_patience = now >= kill_from
        for process in processes if out_of_patience else processes - asked:
            try:
                (process.kill if out_of_patience else process.terminate)()
            except psutil.NoSuchProcess:
                continue
        asked |= processes
        psutil.wait_procs(list(processes), timeout=_SWEEP_S)


def _carriers(folder: Path, but: Collection[int]) -> Iterable[psutil.Process]:
    wanted, us, uid = str(folder.absolute()), os.getpid(), os.getuid()
    for process in psutil.process_iter():
        try:
            if process.pid == us or process.pid in but or process.uids().real != uid:
                continue
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(TAG_VARIABLE) == wanted:
                yield process
        except (psutil.Error, OSError):  # ended meanwhile, or not ours to read
            continue
