"""One ZooKeeper with an engine, workers and an operator, each in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.blobsync.line_process import LineProcess
from tests.benchmark.engine.revision import Revision
from tests.benchmark.engine.transaction_log import Entry, entries
from tests.benchmark.leader.clock import now_ns

ROOT = "/nimbus"
_POLL_S = 0.5


class Child:
    """A process of the benchmark; see `child`."""

    def __init__(self, revision: Revision, folder: Path, role: str, *words: str) -> None:
        command = [sys.executable, "-m", "tests.benchmark.engine.child", role, *words]
        log = Path(tempfile.mkstemp(prefix=f"{role}-", suffix=".log", dir=folder)[1])
        self._process = LineProcess(f"{revision.label} {role}", command, log, revision.environment())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, **more: Any) -> Any:
        """Send a request; return the response."""
        return self._process.ask({"do": do, **more})["value"]

    def close(self) -> None:
        """End it. Safe to repeat."""
        self._process.close()


class Lab:
    """See the module. The engine does not lead before `elect` is called."""

    def __init__(self, revision: Revision, folder: Path) -> None:
        self.revision, self.folder = revision, folder
        self.server = ZooKeeperServer(folder / "zookeeper")
        self._children: list[Child] = []

    def start(self) -> None:
        """Start all processes."""
        self.server.start()
        self.engine = self.child("engine")
        self.workers = self.child("workers")
        self.operator = self.child("operator")

    def child(self, role: str) -> Child:
        """Start another process on this ZooKeeper."""
        made = Child(self.revision, self.folder, role, self.server.hosts, ROOT)
        self._children.append(made)
        return made

    def stop(self) -> None:
        """End all processes."""
        for child in reversed(self._children):
            child.close()
        self.server.stop()

    def elect(self, within_s: float) -> None:
        """Let the engine lead."""
        self.engine.ask("lead", within_s=within_s)

    def kill_leader(self, meanwhile: Callable[[], None], within_s: float) -> int:
        """Kill the engine's process while another one waits in the queue, which leads next.

        Args:
            meanwhile: Called while the leader is stopped and not yet dead, so it does not see what changes.
            within_s: Timeout until the other process waits.

        Returns:
            When it was killed, by `now_ns`.
        """
        heir = self.child("engine")
        heir.ask("stand_by", within_s=within_s)
        os.kill(self.engine.pid, signal.SIGSTOP)
        meanwhile()
        killed_ns = now_ns()
        os.kill(self.engine.pid, signal.SIGKILL)
        self.engine.close()
        self.engine = heir
        return killed_ns

    def publish(self, pipelines: Sequence[dict[str, Any]], within_s: float) -> list[str]:
        """Publish pipelines and activate them. Returns the refusals."""
        self.engine.ask("define", pipelines=pipelines)
        refused: list[str] = self.operator.ask("publish", pipelines=pipelines, within_s=within_s)
        return refused

    def hold(self, runs: Sequence[tuple[str, str]], workers: int, within_s: float) -> None:
        """Start runs whose first tasks are claimed and do not end. They fill the slots of their workers."""
        slots = -(-len(runs) // workers)
        self.workers.ask("register", prefix="hold", count=workers, slots=slots, holding=True)
        self.operator.ask("start", runs=runs)
        must(self.operator.ask("answers", within_s=within_s))
        held = self.workers.ask("await_held", count=len(runs), within_s=within_s)
        if held < len(runs):
            raise TimeoutError(f"{held} of {len(runs)} attempts are claimed after {within_s} s")

    def await_state(self, run: str, state: str, within_s: float) -> None:
        """Wait until a run has a state."""
        until = time.monotonic() + within_s
        while (found := self.operator.ask("state", run=run)) != state:
            if time.monotonic() > until:
                raise TimeoutError(f"run {run} is {found}, not {state}, after {within_s} s")
            time.sleep(_POLL_S)

    def zxid(self) -> int:
        """The id of the last transaction."""
        for line in self.server.ask("srvr").decode().splitlines():
            if line.startswith("Zxid:"):
                return int(line.split()[1], 16)
        raise RuntimeError("ZooKeeper does not report its zxid")

    def log(self, after_zxid: int = 0) -> Iterator[Entry]:
        """The entries of the transaction log after `since`."""
        return entries(self.server.data_dir / "data", after_zxid)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each process so far."""
        pids = {"engine": self.engine.pid, "workers": self.workers.pid, "operator": self.operator.pid}
        times = {
            name: psutil.Process(pid).cpu_times()
            for name, pid in (*pids.items(), ("server", self.server.pid))
        }
        return {name: found.user + found.system for name, found in times.items()}


def must(refused: Sequence[str]) -> None:
    """Check that no command was refused."""
    if refused:
        raise RuntimeError(f"{len(refused)} commands were refused, the first: {refused[0]}")


@contextmanager
def lab(revision: Revision, place: Path) -> Iterator[Lab]:
    """Start a lab with its data in a new folder below `place`. The folder is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lab-", dir=place))
    made = Lab(revision, folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
