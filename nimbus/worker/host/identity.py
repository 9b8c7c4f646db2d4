"""Identity of host and process, unique across reboots; and a lock that a living process holds. Linux only."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from functools import cache
from pathlib import Path

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import HostId
from nimbus.worker.host.files import read_if_there
from nimbus.worker.host.procfs import ProcessId, start_ticks

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


class NoHostIdentityError(NimbusError):
    """The id of the current boot cannot be read."""

    code = "no_host_identity"


@cache
def host_id() -> HostId:
    """Name one boot of one machine and one pid namespace. NoHostIdentityError: /proc is missing or hidden.

    Containers of one machine share its boot id and often its machine id, but the pid of one is meaningless in
    another.
    """
    try:
        boot = _BOOT_ID.read_text().strip()
        namespace = os.readlink(_PID_NAMESPACE)  # noqa: PTH115 - "pid:[number]" is not a path
    except OSError as exc:
        raise NoHostIdentityError(
            f"{exc.filename} cannot be read ({exc.strerror}), so processes here cannot be told from those of "
            "an earlier boot. Workers run on Linux with /proc mounted."
        ) from exc
    machine = hashlib.sha256(_machine().encode()).hexdigest()[:8]
    return HostId(f"{boot}-{namespace.strip('pid:[]')}-{machine}")


def _machine() -> str:
    try:
        return _MACHINE_ID.read_text().strip() or hostname()
    except OSError:
        return hostname()


def hostname() -> str:
    """The machine's host name, for display."""
    return socket.gethostname()


def own_process() -> ProcessId:
    """This process."""
    ticks = start_ticks(os.getpid())
    if ticks is None:
        raise NoHostIdentityError("/proc does not show this process. Mount it with its own pid namespace.")
    return ProcessId(os.getpid(), ticks)


def process_text(process: ProcessId) -> bytes:
    """The content of a file that names a process of this boot."""
    return f"{process.pid} {process.start_ticks} {host_id()}\n".encode()


def process_in(file: Path) -> ProcessId | None:
    """The process that a file names; None if it names none of this boot, or is being written."""
    words = (read_if_there(file) or b"").split()
    if len(words) != 3 or words[2].decode() != host_id():
        return None
    return ProcessId(int(words[0]), int(words[1]))


class ProcessLock:
    """flock, held as long as a process lives, on a file with pid, start ticks and host of the last holder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, holder: ProcessId) -> int | None:
        """Take the lock until the returned descriptor is closed; None: a living process holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.pwrite(fd, process_text(holder), 0)
        return fd

    def is_held(self) -> bool:
        """True if the holder is alive."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def last_holder(self) -> ProcessId | None:
        """The last holder in this boot, dead or alive."""
        return process_in(self.path)


class WorkDirInUseError(NimbusError):
    """Two live workers share a folder."""

    code = "work_dir_in_use"
    exit_code = 4

    def __init__(self, work_dir: Path) -> None:
        super().__init__(
            f"{work_dir} is in use by another live worker. Give each worker its own `worker.work_dir`, or "
            "stop the other."
        )


def take_work_dir(work_dir: Path) -> int:
    """Lock the folder until the returned descriptor is closed. WorkDirInUseError: a live worker has it."""
    work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = ProcessLock(work_dir / "worker.lock").take(own_process())
    if fd is None:
        raise WorkDirInUseError(work_dir)
    return fd
