"""Ports on loopback that stay the same between starts.

Ports are below the range that the kernel uses for outgoing connections. A client that retries a stopped
server on a port inside that range would at some time get the same port for its own end and connect to itself;
then the server could not start again.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path

from nimbus.localstack.errors import PortBusyError
from nimbus.localstack.folder import write_private
from nimbus.localstack.process import Report, silent

LOOPBACK = "127.0.0.1"
_LOWEST = 20_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200
_reserved = deque[socket.socket](maxlen=100)
"""Sockets with the names of the last ports that this process has chosen."""


def is_free(port: int) -> bool:
    """True if a server can listen on `port` of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is free
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def http_answer(
    port: int, path: str, deadline_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes] | None:
    """Status and body of a loopback server's answer; None if there is none."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=deadline_s)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def free_port(taken: Collection[int] = ()) -> int:
    """A free loopback port that is not in `taken`.

    Other programs may take it. This function does not return it again, in any process of this host, before
    this process has ended or has chosen 100 others: its server may not listen yet.
    """
    above = _lowest_ephemeral()
    for _ in range(_TRIES):
        port = _LOWEST + secrets.randbelow(above - _LOWEST)
        if port not in taken and is_free(port) and _reserve(port):
            return port
    raise PortBusyError(port=port, what=f"nothing (after {_TRIES} tries between {_LOWEST} and {above}) ")


def _reserve(port: int) -> bool:
    """Bind an abstract Unix socket, which the kernel removes with this process. False: another one has it."""
    named = socket.socket(socket.AF_UNIX)
    try:
        named.bind(f"\0nimbus-port-{port}")
    except OSError:
        named.close()
        return False
    if len(_reserved) == _reserved.maxlen:
        _reserved.popleft().close()
    _reserved.append(named)
    return True


def require_free(port: int, what: str) -> None:
    """Raise PortBusyError for a busy port, before a child process fails on it with a worse message."""
    if not is_free(port):
        raise PortBusyError(port=port, what=what)


class PortBook:
    """Stores the port of each part of the stack in a small JSON file, `{name: port}`.

    A missing or unreadable file counts as empty. `report` is called when a stored port is busy.
    """

    def __init__(self, file: Path, report: Report = silent) -> None:
        self._file, self._report = file, report
        self._ports = _read(file)

    def take(self, name: str) -> int:
        """The port of `name`: that of the last start if it is free, else a new one, which is stored."""
        known = self._ports.get(name)
        if known is not None and is_free(known):
            return known
        port = free_port(taken=self._ports.values())
        if known is not None:
            self._report(
                f"{name}: port {known} of the last start is used by another process; now on {port}. "
                "Addresses noted from the last start no longer hold."
            )
        self._ports[name] = port
        write_private(self._file, json.dumps(self._ports, indent=2, sort_keys=True))
        return port


def _read(file: Path) -> dict[str, int]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {name: port for name, port in known.items() if isinstance(port, int) and 0 < port < 65_536}


def _lowest_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32_768
    # If the machine's range contains almost every port, the usual value is the best choice.
    return lowest if lowest > _LOWEST + _TRIES else 32_768
