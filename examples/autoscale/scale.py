"""Starts and ends workers on this host by need. For machines of a cloud, replace the class `Host`.

    python scale.py --config worker.yaml --slots 2 --most 4 --labels gpu --server http://127.0.0.1:8470

A worker is ended only when it has been drained, so no attempt is interrupted. On SIGTERM or Ctrl-C all are.
Workers that another process has started are left alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from nimbus.client import Client, UnreachableError, WaitTimeoutError, Wanted

SETTLE_S = 20.0
"""By then, a new worker has registered and got its tasks, and the leader no longer reports its slots."""


@dataclass
class Host:
    """Where workers run: this host, each as a process with a folder of its own."""

    config: Path
    slots: int
    labels: tuple[str, ...]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a worker."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        settings = {
            "NIMBUS__WORKER__ID": name,
            "NIMBUS__WORKER__SLOTS": str(self.slots),
            "NIMBUS__WORKER__LABELS": f"[{', '.join(self.labels)}]",
            "NIMBUS__SCHEDULER__STATE_DIR": str(place),
        }
        with (place / "worker.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "nimbus.cli.main", "worker", "--config", str(self.config)],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
            )

    def stop(self, name: str) -> None:
        """End a worker that was drained."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait()


@dataclass
class Scaler:
    """Decides when to start and end workers. `step` is called every few seconds."""

    client: Client
    host: Host
    most: int
    """Limit of workers."""
    targets: tuple[str, ...] = ()
    idle_s: float = 60.0
    """A worker without attempts is ended after this time, if nothing is wanted."""
    prefix: str = "auto"
    last_start_s: float = 0.0
    numbers: int = 0
    busy_at_s: dict[str, float] = field(default_factory=dict)

    def step(self, now_s: float) -> None:
        """Look once, and act. Without a leader, or an answer, nothing is started or ended."""
        try:
            wanted, rows = self.client.wanted(), self.client.workers()
        except UnreachableError:
            return
        for name in [name for name, process in self.host.processes.items() if process.poll() is not None]:
            del self.host.processes[name]  # it died; the leader gives its tasks to others
        if wanted is None:
            return
        slots = sum(one.slots for one in wanted if self._suits(one))
        for row in rows:
            if row["busy"] or row["in_clusters"]:
                self.busy_at_s[row["id"]] = now_s
        if slots and now_s - self.last_start_s >= SETTLE_S:
            for _ in range(min(-(-slots // self.host.slots), self.most - len(self.host.processes))):
                self._start(now_s)
        elif not slots:
            registered = {row["id"] for row in rows}
            idle = [
                name for name in self.host.processes if now_s - self.busy_at_s.get(name, now_s) >= self.idle_s
            ]
            for name in registered.intersection(idle):
                self.end(name)

    def _suits(self, one: Wanted) -> bool:
        return set(one.labels) <= set(self.host.labels) and one.target in ("", *self.targets)

    def _start(self, now_s: float) -> None:
        self.numbers += 1
        name = f"{self.prefix}-{os.getpid()}-{self.numbers}"
        self.host.start(name)
        self.last_start_s = self.busy_at_s[name] = now_s

    def end(self, name: str, timeout_s: float = 30.0) -> None:
        """Drain a worker and end it. If it gets busy at the last moment, it stays."""
        try:
            self.client.drain(name, reason="no work", timeout_s=timeout_s)
        except WaitTimeoutError:
            self.client.uncordon(name)
            return
        self.host.stop(name)
        self.client.uncordon(name)  # cordons of workers that are gone would fill the settings


def main() -> None:
    """Scale until SIGTERM or Ctrl-C, then drain and end all workers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config", type=Path, required=True, help="configuration of a worker")
    parser.add_argument("--server", action="append", default=[], help="URL of a scheduler")
    parser.add_argument("--slots", type=int, default=2, help="slots of each worker")
    parser.add_argument("--most", type=int, default=4, help="limit of workers")
    parser.add_argument("--labels", nargs="*", default=[], help="labels of each worker")
    parser.add_argument("--targets", nargs="*", default=[], help="targets in its configuration")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds without work until a worker ends")
    parser.add_argument("--folder", type=Path, default=Path("workers"), help="folders of the workers")
    said = parser.parse_args()
    if not said.config.is_file() or said.slots < 1:
        parser.error("--config must name a file, and --slots be at least 1")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    host = Host(said.config, said.slots, tuple(said.labels), said.folder)
    with Client(*said.server) as client:
        scaler = Scaler(client, host, said.most, tuple(said.targets), said.idle)
        while not stopping.wait(2.0):
            scaler.step(time.monotonic())
        for name in list(host.processes):
            scaler.end(name, timeout_s=3600.0)


if __name__ == "__main__":
    main()
