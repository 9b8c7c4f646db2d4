"""The Linux users that drivers run as: looked up at a worker's start; each driver switches to its user.

Standard library only: drivers and their parents import this. See docs/adr/0028.
"""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName
from nimbus.worker.host.files import make_passage

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SYS_PTRACE": 19,
}
"""Capabilities of a worker: change owners of folders, switch users, see and end other users' processes."""
_NO_UID = 2**32 - 1
"""Tells the kernel not to change the user."""
_libc = ctypes.CDLL(None, use_errno=True)


class TaskUserError(NimbusError):
    """Drivers cannot run as the user that the configuration names."""

    code = "task_user"
    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUser:
    """The user of a driver."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a login sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def become(self) -> None:
        """Switch this process permanently to the user. It must have one thread.

        Call `nimbus.worker.host.forked.die_with` afterwards, because the switch clears that setting.
        """
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_DUMPABLE, 1)  # as for a program that this user started: it owns its /proc

    def may_read(self, file: Path) -> bool:
        """True if a file's mode, and the modes of its parent folders, permit the user to read it."""
        path = Path(os.path.realpath(file))
        try:
            return self._may(path, 4) and all(self._may(folder, 1) for folder in path.parents)
        except OSError:
            return False

    def _may(self, path: Path, right: int) -> bool:
        status = path.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & right << 6)
        return bool(status.st_mode & (right << 3 if status.st_gid in self.groups else right))


@dataclass(frozen=True, slots=True)
class TaskUsers:
    """The users of a worker's tasks, by pipeline."""

    of_all: TaskUser | None = None
    """User of all other pipelines; None: the worker's own user."""
    of_pipelines: Mapping[PipelineName, TaskUser] = field(default_factory=dict)

    def of(self, pipeline: PipelineName) -> TaskUser | None:
        """The user of a pipeline's tasks; None: the worker's own."""
        return self.of_pipelines.get(pipeline, self.of_all)

    def all(self) -> tuple[TaskUser, ...]:
        """All users, without duplicates."""
        users = (self.of_all, *self.of_pipelines.values())
        return tuple({user.uid: user for user in users if user is not None}.values())


def find_users(run_as: str | None, run_as_pipelines: Mapping[str, str]) -> TaskUsers:
    """Find the users, each by name or uid. TaskUserError: none such, or root, or we cannot switch users."""
    if run_as is None and not run_as_pipelines:
        return TaskUsers()
    if lacking := _lacking():
        raise TaskUserError(
            f"worker.run_as is set, and this worker cannot run tasks as another user: it lacks {lacking}. "
            "Start it as root, in a container with these capabilities, or remove worker.run_as."
        )
    return TaskUsers(
        None if run_as is None else _find("worker.run_as", run_as),
        {
            PipelineName(pipeline): _find(f"worker.run_as_pipelines.{pipeline}", name)
            for pipeline, name in run_as_pipelines.items()
        },
    )


def refuse_readable_secrets(users: TaskUsers, files: Iterable[Path]) -> None:
    """Refuse to run tasks as users that can read a file with secrets. Raises TaskUserError."""
    for file in files:
        for user in users.all():
            if user.may_read(file):
                raise TaskUserError(
                    f"{file} holds secrets, and user {user.name}, as whom tasks run, can read it. Close it: "
                    f"chmod 0600 {file}"
                )


def _lacking() -> str:
    if os.geteuid() != 0:
        return "the rights of root"
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    return ", ".join(name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1)


def _find(key: str, name: str) -> TaskUser:
    is_number = name.isdecimal() and int(name) < _NO_UID
    try:
        entry = pwd.getpwuid(int(name)) if is_number else pwd.getpwnam(name)
    except KeyError:
        if not is_number:
            raise TaskUserError(
                f"{key}: there is no user {name!r} on this host; make it, or name another"
            ) from None
        user = TaskUser(name=name, uid=int(name), gid=int(name), groups=(int(name),), home="/")
    else:
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        user = TaskUser(
            name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir
        )
    if user.uid == 0 or 0 in user.groups:
        of_whom = "root" if user.uid == 0 else f"in the group {grp.getgrgid(0).gr_name}"
        raise TaskUserError(f"{key}: user {name!r} is {of_whom}; name a user with no rights of root")
    return user


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def open_to_users(work_dir: Path) -> None:
    """Permit the users of drivers to traverse to the folders of their attempts, and to read nothing else."""
    for folder in (work_dir, work_dir / "attempts", work_dir / "executors", work_dir / "wheels"):
        make_passage(folder)
