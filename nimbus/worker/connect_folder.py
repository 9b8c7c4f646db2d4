"""The folder of a Spark Connect server that a worker has started: how it is reached, and who uses it.

    <work_dir>/connect/<port>/           mode 0700
        server.json     pid, start ticks, host, port, token; mode 0600
        in-use          flock, shared, of each runner with a session there; its time is that of the last use
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
from pathlib import Path

from pydantic import TypeAdapter

from nimbus.worker import procfs
from nimbus.worker.connect_plan import ConnectPlan
from nimbus.worker.files import read_if_there, write_atomic
from nimbus.worker.identity import host_id
from nimbus.worker.procfs import ProcessId

_KILL_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """What `server.json` says."""

    pid: int
    start_ticks: int
    host: str
    port: int
    token: str = field(repr=False)
    made_of: str
    """Digest of what it was started with."""

    @property
    def id(self) -> ProcessId:
        """Its process."""
        return ProcessId(self.pid, self.start_ticks)

    @property
    def is_here(self) -> bool:
        """It was started on this host."""
        return self.host == host_id()

    @property
    def lives(self) -> bool:
        """That process has not ended."""
        return self.is_here and procfs.is_alive(self.pid, self.start_ticks)


_SERVER = TypeAdapter(ServerRecord)


def note_server(folder: Path, record: ServerRecord) -> None:
    """Write `server.json`."""
    write_atomic(folder / "server.json", _SERVER.dump_json(record))


def server_in(folder: Path) -> ServerRecord | None:
    """What `server.json` says; None: there is none, or another version wrote it."""
    data = read_if_there(folder / "server.json")
    try:
        return _SERVER.validate_json(data) if data is not None else None
    except ValueError:
        return None


def servers_below(folder: Path) -> Iterator[tuple[Path, ServerRecord]]:
    """All servers that a worker has started and not removed, dead or alive, with their folders."""
    for file in sorted(folder.glob("*/server.json")):
        record = server_in(file.parent)
        if record is not None:
            yield file.parent, record


def plan_of(folder: Path, session_id: str, url: str) -> ConnectPlan | None:
    """How to reach a session on a worker's own server, dead or alive, from that worker's folder.

    None: the server was removed, or is not of this host.
    """
    place = folder / "connect" / url.rpartition(":")[2]
    record = server_in(place)
    if record is None or not record.is_here:
        return None
    return ConnectPlan(url=url, token=record.token, session_id=session_id, server=record.id, folder=place)


def use(folder: Path) -> int:
    """Keep a server from being ended as unused for as long as the returned descriptor is open.

    Raises:
        FileNotFoundError: it was ended already.
    """
    fd = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    os.utime(fd)
    return fd


def end_server(server: ProcessId) -> bool:
    """Kill a server and all of its session: it has no session of a client, or does not answer any.

    A server that has ended may have left programs that its operations started.
    """

    def find() -> list[ProcessId]:
        now = procfs.read_stat(server.pid)
        if now is not None and now.id != server:
            return []  # the pid was given away, so nothing of the session is left
        return [
            found.id
            for found in procfs.living()
            if found.session == server.pid and found.id.start_ticks >= server.start_ticks
        ]

    return procfs.kill_all(find, deadline_s=_KILL_DEADLINE_S)


def is_unused(folder: Path, idle_s: float) -> bool:
    """Whether no runner uses a server, and none has for so long."""
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
    """Note that a runner is about to use a server."""
    with suppress(FileNotFoundError):
        os.utime(folder / "in-use")
