"""The folder of a Spark Connect server that a worker has started: its address, and its users.

    <work_dir>/connect/<port>/           mode 0700
        server.json     pid, start ticks, host, port, token; mode 0600
        in-use          shared flock of each runner with a session there; its mtime is the last use
        tmp/, local/, warehouse/     the server's files

Any process of the worker's user.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.host import procfs
from nimbus.worker.host.files import read_if_there, write_atomic
from nimbus.worker.host.identity import host_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """The content of `server.json`."""

    pid: int
    start_ticks: int
    host: str
    port: int
    token: str = field(repr=False)
    made_of: str
    """Digest of its start settings."""

    @property
    def id(self) -> procfs.ProcessId:
        """The id of its process."""
        return procfs.ProcessId(self.pid, self.start_ticks)

    @property
    def is_here(self) -> bool:
        """True if it was started on this host."""
        return self.host == host_id()

    @property
    def lives(self) -> bool:
        """True if its process has not ended."""
        return self.is_here and procfs.is_alive(self.id)


_SERVER = TypeAdapter(ServerRecord)


def note_server(folder: Path, record: ServerRecord) -> None:
    """Write `server.json`."""
    write_atomic(folder / "server.json", _SERVER.dump_json(record))


def server_in(folder: Path) -> ServerRecord | None:
    """The content of `server.json`; None if it is missing, or another version wrote it."""
    data = read_if_there(folder / "server.json")
    try:
        return _SERVER.validate_json(data) if data is not None else None
    except ValueError:
        return None


def servers_below(folder: Path) -> Iterator[tuple[Path, ServerRecord]]:
    """All servers that a worker has started and not yet removed, dead or alive, with their folders."""
    for file in sorted(folder.glob("*/server.json")):
        record = server_in(file.parent)
        if record is not None:
            yield file.parent, record


def plan_of(folder: Path, session_id: str, url: str) -> ConnectPlan | None:
    """The plan for a session on a worker's own server, dead or alive; None: removed, or elsewhere."""
    place = folder / "connect" / url.rpartition(":")[2]
    record = server_in(place)
    if record is None or not record.is_here:
        return None
    return ConnectPlan(url=url, token=record.token, session_id=session_id, server=record.id, folder=place)


def use(folder: Path) -> int:
    """Mark a server as used while the returned descriptor is open. FileNotFoundError: it was stopped."""
    fd = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    os.utime(fd)
    return fd


def end_server(server: procfs.ProcessId) -> bool:
    """Kill a server and its whole session: programs that its operations started may outlive it."""
    return procfs.kill_all(partial(procfs.session_of, server))


def is_unused(folder: Path, idle_s: float) -> bool:
    """True if no runner has used a server for `idle_s` seconds."""
    fd = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return time.time() - os.fstat(fd).st_mtime >= idle_s
    finally:
        os.close(fd)


def touch(folder: Path) -> None:
    """Record that a runner is about to use a server."""
    with suppress(FileNotFoundError):
        os.utime(folder / "in-use")
