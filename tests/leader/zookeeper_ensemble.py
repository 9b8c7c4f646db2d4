"""Several real ZooKeeper servers that replicate one another, as child processes on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from nimbus.localstack.errors import LocalStackError
from nimbus.localstack.ports import LOOPBACK, free_port
from nimbus.localstack.process import Report, silent
from nimbus.localstack.zookeeper import ZooKeeperServer

_INIT_LIMIT_TICKS = 6
"""How long a new leader waits for a majority, and a follower for the data, before a new vote."""
_SYNC_LIMIT_TICKS = 6
"""How long a follower may be without contact."""


Route = Callable[[int, int, int], int]
"""Number of the server that connects, number of the other, its port -> the port to connect to."""


class EnsembleServer(ZooKeeperServer):
    """One server of an ensemble. It is ready when it belongs to a quorum.

    Args:
        data_dir: As for a single server.
        number: Its number in the ensemble, from 1.
        peers: Ports for data and elections of each server by number, including this one.
        tick: As for a single server.
        environment: As for a single server.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        number: int,
        port: int,
        peers: Mapping[int, tuple[int, int]],
        tick: timedelta,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir, port, tick, environment=environment, name=f"ZooKeeper {number}")
        self.number, self._peers = number, peers

    @property
    def mode(self) -> str:
        """`leader` or `follower`; empty while it serves no clients."""
        for line in self.ask("srvr").decode(errors="replace").splitlines():
            if line.startswith("Mode:"):
                return line.removeprefix("Mode:").strip()
        return ""

    def wipe(self) -> None:
        """Delete all its data.

        Raises:
            LocalStackError: it runs.
        """
        if self.running:
            raise LocalStackError(f"{self.name} runs; stop it before its data are deleted")
        shutil.rmtree(self._data, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.data_dir / "data"

    def _more_options(self) -> Sequence[str]:
        # Resend a lost vote soon; by default the pauses grow to a minute.
        return ("-Dzookeeper.fastleader.maxNotificationInterval=400",)

    def _settings(self) -> dict[str, object]:
        self._data.mkdir(parents=True, exist_ok=True)
        (self._data / "myid").write_text(f"{self.number}\n")
        return super()._settings() | {
            "initLimit": _INIT_LIMIT_TICKS,
            "syncLimit": _SYNC_LIMIT_TICKS,
            **{
                f"server.{number}": f"{LOOPBACK}:{data}:{vote}"
                for number, (data, vote) in self._peers.items()
            },
        }


class Ensemble:
    """Three servers or more. Each can be killed, stopped, paused and started separately: see `servers`.

    Main thread only, like every child process here.

    Args:
        folder: Contains a folder for each server.
        size: How many servers; a majority must run.
        tick: Unit of ZooKeeper's time; a session may be as short as two ticks.
        environment: Added to the environment of the processes.
        route: Returns the loopback port through which a server connects to a port of another, for proxies
            between them. Default: directly.
    """

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        tick: timedelta = timedelta(milliseconds=500),
        *,
        environment: Mapping[str, str] | None = None,
        route: Route | None = None,
    ) -> None:
        if size < 2:
            raise LocalStackError(f"an ensemble of {size} is none; use ZooKeeperServer for a single server")
        numbers = range(1, size + 1)
        ports = _free_ports(3 * size)
        peers = {number: (ports.pop(), ports.pop()) for number in numbers}
        self.servers = tuple(
            EnsembleServer(
                folder / f"zookeeper-{number}",
                number=number,
                port=ports.pop(),
                peers=_seen_from(number, peers, route),
                tick=tick,
                environment=environment,
            )
            for number in numbers
        )

    @property
    def hosts(self) -> str:
        """Connection string that names all servers."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and client port of each server."""
        return [(LOOPBACK, server.port) for server in self.servers]

    @property
    def leader(self) -> EnsembleServer | None:
        """The current leader; None without a quorum."""
        return next((server for server in self.servers if server.mode == "leader"), None)

    def start(self, report: Report = silent) -> None:
        """Start all servers that do not run, and wait until each serves clients.

        Raises:
            ProcessStartError: one ended, or did not join the others in time. All are ended then.
            LocalStackError: something it needs is missing, or a port is busy. All are ended then.
        """
        started = [server for server in self.servers if not server.running]
        try:
            for server in started:
                server.spawn()
            for server in started:
                server.wait_ready(report=report)
        except BaseException:  # also for Ctrl-C: no child may stay
            self.kill()
            raise

    def stop(self, deadline: timedelta = timedelta(seconds=10)) -> None:
        """End all servers. Safe to repeat."""
        for server in self.servers:
            if server.running:
                server.terminate()
        for server in self.servers:
            server.stop(deadline)

    def kill(self) -> None:
        """End all servers at once. Safe to repeat."""
        for server in self.servers:
            server.kill()

    def wipe(self, report: Report = silent) -> None:
        """End all servers at once, delete all data, start them again: empty, on the same ports."""
        self.kill()
        for server in self.servers:
            server.wipe()
        self.start(report)


def _seen_from(
    number: int, peers: Mapping[int, tuple[int, int]], route: Route | None
) -> dict[int, tuple[int, int]]:
    """The ports in one server's configuration: its own, and those of the others by `route`."""
    if route is None:
        return dict(peers)
    return {
        other: ports if other == number else (route(number, other, ports[0]), route(number, other, ports[1]))
        for other, ports in peers.items()
    }


def _free_ports(count: int) -> list[int]:
    ports: list[int] = []
    while len(ports) < count:
        ports.append(free_port(taken=ports))
    return ports
