"""Faults that are injected in the middle of a run. Each fault is undone before the function returns."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil
from kazoo.client import KazooClient

from nimbus.localstack.daemons import ROOT
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from tests.nimbus.chaos.cluster import FINAL, NAME, SESSION, Cluster, moment, number_of, seconds_after, until

LONGEST_DELAY_S = 5.0
"""Longest time from a run's start to the fault; an undisturbed run takes six to eight seconds."""
SCALE = 2.0
"""Duration factor of the tasks of such a run."""
DRIVER_DIES_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """An injected fault."""

    kind: str
    target: str
    takeover_s: float | None = None
    """Time from the fault until the new leader had recovered; None: the leader was not affected."""


Fault = Callable[[Cluster, str, random.Random], Injected | None]
"""Takes the cluster, the run and the random source; None: the run ended before the fault."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, and the kind of its run."""

    fault: Fault
    pipeline: str = NAME
    starts_run: bool = False
    """The fault begins before the run, and starts it itself."""


def leader_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL the leader; restart it when another one leads."""
    moment(rng.uniform(0, LONGEST_DELAY_S))
    before = _leader_in_the_middle(cluster, run_id)
    if before is None:
        return None
    number = number_of(before)
    at = cluster.kill_scheduler(number)
    after = cluster.leader(above=before["epoch"])
    cluster.start_scheduler(number, wait=False)
    return Injected(
        kind="leader killed", target=before["id"], takeover_s=seconds_after(at, after["recovered_at"])
    )


def leader_paused(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGSTOP the leader for twice its session timeout, so that another one leads; then resume the zombie."""
    moment(rng.uniform(0, LONGEST_DELAY_S))
    before = _leader_in_the_middle(cluster, run_id)
    if before is None:
        return None
    number = number_of(before)
    scheduler = cluster.stack.scheduler(number)
    cluster.silent.add(number)
    at = time.time()
    scheduler.pause()
    try:
        after = cluster.leader(above=before["epoch"])
        moment(max(0.0, at + 2 * SESSION.total_seconds() - time.time()))
    finally:
        scheduler.resume()
        cluster.silent.discard(number)
    return Injected(
        kind="leader paused", target=before["id"], takeover_s=seconds_after(at, after["recovered_at"])
    )


def leader_deposed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """Raise the epoch while the leader is stopped for a moment, and give it something to decide.

    This always creates a zombie: it resumes with its connection, session and deadline intact, still considers
    itself the leader, and writes at once. Only the fence can refuse that write.
    """
    moment(rng.uniform(0, LONGEST_DELAY_S))
    before = _leader_in_the_middle(cluster, run_id)
    if before is None:
        return None
    scheduler = cluster.stack.scheduler(number_of(before))
    with _epoch_of(cluster) as raise_epoch:  # connected first, because the stop must be short
        cluster.silent.add(number_of(before))
        at = time.time()
        scheduler.pause()
        try:
            epoch = raise_epoch()
            cluster.restart_run(run_id)
        finally:
            scheduler.resume()
            cluster.silent.discard(number_of(before))
    after = cluster.leader(above=epoch)
    return Injected(
        kind="leader deposed", target=before["id"], takeover_s=seconds_after(at, after["recovered_at"])
    )


@contextmanager
def _epoch_of(cluster: Cluster) -> Iterator[Callable[[], int]]:
    """A function that raises the epoch like a new leader, but without the lock, and returns the new epoch."""
    client = KazooClient(cluster.stack.zookeeper.hosts)

    def raise_epoch() -> int:
        data, stat = client.get(f"{ROOT}/epoch")
        document = json.loads(data)
        document |= {"epoch": document["epoch"] + 1, "latch": ""}
        client.set(f"{ROOT}/epoch", json.dumps(document).encode(), stat.version)
        return int(document["epoch"])

    client.start(timeout=30)
    try:
        yield raise_epoch
    finally:
        client.stop()
        client.close()


def worker_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL a worker with a running attempt; restart it at once, during the attempt, or later."""
    moment(rng.uniform(0, LONGEST_DELAY_S))
    found = victim(cluster, run_id, rng)
    if found is None:
        return None
    _, attempt = found
    worker = next(each for each in cluster.stack.workers if each.name == attempt["worker"])
    worker.kill()
    if rng.random() < 0.5:
        moment(rng.uniform(0, 1.5 * SESSION.total_seconds()))
    worker.spawn()
    return Injected(kind="worker killed", target=worker.name)


def runner_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL a runner. Its driver must die with it."""
    moment(rng.uniform(0, LONGEST_DELAY_S))
    while (found := victim(cluster, run_id, rng, isolated=True)) is not None:
        attempt_id, attempt = found
        processes = runner_and_driver(attempt_id, attempt)
        if processes is None:  # it has just ended
            continue
        runner, driver = processes
        os.kill(runner.pid, signal.SIGKILL)
        until(f"the driver of {attempt_id} to die with it", DRIVER_DIES_S, partial(is_gone, driver))
        return Injected(kind="runner killed", target=attempt_id)
    return None


def fork_server_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL the fork servers of a worker with a running attempt. Its runners must continue."""
    moment(rng.uniform(0, LONGEST_DELAY_S))
    found = victim(cluster, run_id, rng)
    if found is None:
        return None
    worker = next(each for each in cluster.stack.workers if each.name == found[1]["worker"])
    children = psutil.Process(worker.pid).children()
    servers = [child for child in children if "nimbus.worker.fork_server" in _words(child)]
    assert servers, f"{worker.name} has no fork server"
    for server in servers:
        server.kill()
    return Injected(kind="fork server killed", target=f"{len(servers)} of {worker.name}")


def _words(process: psutil.Process) -> list[str]:
    """The command line; empty: the process has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def executor_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL the executor of a worker with a pooled attempt. Its drivers must die with it."""
    return _pool_harmed(cluster, run_id, rng, "executor", signal.SIGKILL)


def zygote_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL the process that forks pooled drivers. They must die with it."""
    return _pool_harmed(cluster, run_id, rng, "zygote", signal.SIGKILL)


def pooled_driver_killed(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGKILL a pooled driver, and no other."""
    return _pool_harmed(cluster, run_id, rng, "driver", signal.SIGKILL)


def executor_paused(cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """SIGSTOP an executor for twice its session timeout, then resume it. Its attempts must not be lost."""
    return _pool_harmed(cluster, run_id, rng, "executor", signal.SIGSTOP)


def _pool_harmed(
    cluster: Cluster, run_id: str, rng: random.Random, part: str, number: signal.Signals
) -> Injected | None:
    moment(rng.uniform(0, LONGEST_DELAY_S))
    while (found := victim(cluster, run_id, rng, isolated=False)) is not None:
        worker = next(each for each in cluster.stack.workers if each.name == found[1]["worker"])
        parts = _pool_of(f"{cluster.stack.folder}/{worker.name}")
        if part not in parts:  # it has just ended
            continue
        chosen = rng.choice(parts[part])
        try:
            chosen.send_signal(number)
        except psutil.NoSuchProcess:
            continue
        if number is signal.SIGSTOP:
            moment(2 * SESSION.total_seconds())
            chosen.send_signal(signal.SIGCONT)
            return Injected(kind=f"{part} paused", target=worker.name)
        for driver in parts.get("driver", []) if part != "driver" else []:
            until(f"driver {driver.pid} to die with its {part}", DRIVER_DIES_S, partial(is_gone, driver))
        return Injected(kind=f"{part} killed", target=worker.name)
    return None


def _pool_of(folder: str) -> dict[str, list[psutil.Process]]:
    """The executors, zygotes and drivers of the pool of a worker, whose files are below `folder`."""
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(EXECUTOR_VARIABLE, "").startswith(folder):
                zygotes = process.children()
                drivers = [driver for zygote in zygotes for driver in zygote.children()]
                parts = {"executor": [process], "zygote": zygotes, "driver": drivers}
                for part, processes in parts.items():
                    found.setdefault(part, []).extend(processes)
        except psutil.Error:
            continue
    return {part: processes for part, processes in found.items() if processes}


KINDS = tuple(
    map(
        Kind,
        (
            leader_killed,
            leader_paused,
            leader_deposed,
            worker_killed,
            runner_killed,
            fork_server_killed,
            executor_killed,
            zygote_killed,
            pooled_driver_killed,
            executor_paused,
        ),
    )
)


def _leader_in_the_middle(cluster: Cluster, run_id: str) -> Mapping[str, Any] | None:
    """The leader; None if the run has already ended."""
    leader = cluster.leader()
    return None if cluster.run(run_id)["state"] in FINAL else leader


def victim(
    cluster: Cluster, run_id: str, rng: random.Random, *, isolated: bool | None = None, task: str = ""
) -> tuple[str, Mapping[str, Any]] | None:
    """A computing attempt, optionally of an isolation and a task.

    None if the run ends before there is one.
    """
    computing: list[tuple[str, dict[str, Any]]] = []

    def look() -> bool:
        computing[:] = [
            found
            for found in cluster.computing(run_id)
            if isolated is None or isolated is (found[1]["pid"] is not None)
            if not task or found[0].rsplit(".", 2)[1] == task
        ]
        return bool(computing) or cluster.run(run_id)["state"] in FINAL

    until(f"a computing attempt of {run_id}", 120, look)
    return rng.choice(computing) if computing else None


def runner_and_driver(
    attempt_id: str, attempt: Mapping[str, Any]
) -> tuple[psutil.Process, psutil.Process] | None:
    """The processes of an isolated attempt; None if it has just ended."""
    try:
        driver = psutil.Process(attempt["pid"])
        runner = driver.parent()
        words = runner.cmdline() if runner is not None else []
    except psutil.NoSuchProcess:
        return None
    if runner is None or "nimbus.worker.runner" not in words:
        return None
    return (runner, driver) if any(word.endswith(attempt_id) for word in words) else None


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
