"""Identity of this host and process: names that stay unique when machines reboot and pids wrap.

Linux only; any thread may call it.
"""

from __future__ import annotations

import hashlib
import os
import socket
from functools import cache
from pathlib import Path

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import HostId
from nimbus.worker.procfs import ProcessId, is_alive, start_ticks

__all__ = ["ProcessId", "host_id", "hostname", "is_alive", "own_process", "start_ticks"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


class NoHostIdentityError(NimbusError):
    """The id of the current boot cannot be read."""

    code = "no_host_identity"


@cache
def host_id() -> HostId:
    """Name one boot of one machine and one pid namespace.

    Containers of one machine share its boot id and often its machine id, but the pid of one is meaningless in
    another. So the pid namespace is part of the name.

    Raises:
        NoHostIdentityError: /proc is missing or hidden.
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
