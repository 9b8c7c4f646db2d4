"""Finds and ends the processes of one stack by a tag in their environment.

Attempts of tasks are detached from their scheduler: they have their own session and parent. But they keep the
environment of their start, and all their children inherit it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from nimbus.localstack.errors import ProcessStateError

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


def tag(folder: Path) -> dict[str, str]:
    """The environment variable that marks every process of the stack in `folder`."""
    return {TAG_VARIABLE: str(folder.absolute())}


def find(folder: Path, *, but: Collection[int] = ()) -> list[TaggedProcess]:
    """This user's living processes with the tag of `folder`, except this one and those in `but`."""
    found = []
    for process in _carriers(folder, but):
        try:
            command = " ".join(process.cmdline()) or process.name()
        except psutil.Error:  # ended meanwhile
            continue
        found.append(TaggedProcess(pid=process.pid, command=command))
    return found


def end(folder: Path, *, but: Collection[int] = (), patience: timedelta = timedelta(seconds=5)) -> None:
    """End all processes that `find` returns: SIGTERM, then SIGKILL for those left after `patience`.

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
