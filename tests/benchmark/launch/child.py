"""Runs attempts one after the other through the launcher of its revision: `child.py ATTEMPTS FOLDER [HOSTS]`.

If HOSTS has addresses of ZooKeeper, the runners report there, otherwise to a board in files. It prints a line
of JSON. This process adopts orphans, so that the processor time of every started process is counted.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.paths import Paths
from nimbus.domain.ids import AttemptId
from nimbus.worker.launcher import launch
from tests.nimbus.worker_bench import Bench, eventually

try:
    from nimbus.worker.launcher import ForkLauncher
except ImportError:  # before runners were forked
    ForkLauncher = None  # type: ignore[assignment,misc]

_PR_SET_CHILD_SUBREAPER = 36
_ROOT = "/nimbus"
_WARM_UP = 2
_PATIENCE_S = 60.0


def main(words: list[str]) -> int:
    """Measure, and print."""
    attempts, place, hosts = int(words[0]), Path(words[1]), words[2] if len(words) > 2 else None
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    bench = Bench(place)
    launcher = ForkLauncher() if ForkLauncher is not None else None
    if launcher is not None:
        launcher.start()
    names = [f"run1.task{number}.1" for number in range(attempts + _WARM_UP)]
    startup = bench.startup()
    if hosts is not None:
        startup = replace(startup, connections=_connections(hosts, names))
    bench.script("task.py", "")
    walls: list[float] = []
    started = (0.0, 0.0)
    for number, name in enumerate(names):
        if number == _WARM_UP:
            started = time.process_time(), _below(launcher)
        folder = bench.folder(name)
        order = bench.order("task.py", attempt=name)
        begun = time.perf_counter()
        folder.create(order)
        runner = (launcher or launch)(folder, startup)
        if runner is not None:
            _await_end(runner.pid)
        walls.append(time.perf_counter() - begun)
        eventually(lambda folder=folder: folder.is_delivered, f"delivery of {name}")  # type: ignore[misc]
    own, below = time.process_time() - started[0], _below(launcher) - started[1]
    if launcher is not None:
        launcher.close()
    bench.close()
    walls = sorted(walls[_WARM_UP:])
    figures = {
        "runner and driver, CPU ms": below / attempts * 1000,
        "launcher, CPU ms": own / attempts * 1000,
        "from order to the runner's end, p50 ms": walls[len(walls) // 2] * 1000,
        "from order to the runner's end, p95 ms": walls[int(len(walls) * 0.95)] * 1000,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def _connections(hosts: str, names: list[str]) -> Any:
    from nimbus.worker.attempt.connections import Connections

    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(timedelta(seconds=30))
    paths = Paths(_ROOT)
    for name in names:
        session.call(session.client.ensure_path_async, paths.attempt(AttemptId.parse(name)))
    session.close(timedelta(seconds=5))
    return Connections(board={"kind": "zookeeper", "root": _ROOT, "hosts": hosts})


def _await_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    ended = poll.poll(_PATIENCE_S * 1000)
    os.close(handle)
    if not ended:
        raise TimeoutError(f"runner {pid} is still running after {_PATIENCE_S:.0f} s")


def _below(launcher: Any) -> float:
    """Processor time in seconds of all ended descendants of this process, and of the fork server."""
    try:
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    if launcher is not None and launcher.pid is not None:
        text = Path(f"/proc/{launcher.pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
