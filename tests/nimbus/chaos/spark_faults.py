"""Faults for kept JVMs and Spark Connect servers. Each fault is undone before the function returns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.connect.server_folder import servers_below
from nimbus.worker.host import procfs
from nimbus.worker.host.identity import ProcessLock
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.jvm.keeper import LOCK
from tests.nimbus.chaos.cluster import SESSION, SPARK_NAME, Cluster, moment, until
from tests.nimbus.chaos.faults import (
    DRIVER_DIES_S,
    KINDS,
    SCALE,
    Injected,
    Kind,
    fork_server_killed,
    is_gone,
    leader_killed,
    runner_and_driver,
    victim,
    worker_killed,
)

SILENT = frozenset({"query"})
"""Tasks of the pipeline that write no journal."""
_CLASSIC, _OPERATION = "classic", "operation"
_LONGEST_DELAY_S = 2.0
"""Time from the start of an attempt's code to the fault. The code works for four seconds."""
_LOOK_S = 0.1


def _idle_harmed(part: str, harm: str, cluster: Cluster, run_id: str, _rng: random.Random) -> Injected | None:
    """Harm all idle JVMs, or their keepers, just before a run that would use one."""
    idle = [pair for work in cluster.work_dirs().values() for pair in _idle(work / "jvms")]
    victims = [pair[part] for pair in idle]
    if harm == "paused":
        with _paused(victims):
            cluster.start_run(run_id, pipeline=SPARK_NAME, scale=SCALE)
            moment(2 * SESSION.total_seconds())
    else:
        _kill(victims)
        cluster.start_run(run_id, pipeline=SPARK_NAME, scale=SCALE)
        for process in (process for pair in idle for process in pair.values()):
            until("a JVM and its keeper to end together", DRIVER_DIES_S, partial(is_gone, process))
    return Injected(kind=f"idle {part} {harm}", target=str(len(victims))) if victims else None


def _used_harmed(part: str, harm: str, cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """Harm the JVM of an attempt, its keeper, its driver or its runner."""
    found = _at_work(cluster, run_id, rng, _CLASSIC)
    if found is None or part in ("driver", "runner"):
        return None if found is None else _attempt_harmed(found, "Spark", part, harm)
    name, attempt = found
    folders = AttemptFolder.all_in(cluster.work_dirs()[attempt["worker"]])
    keeper = next((folder.jvm_keeper() for folder in folders if str(folder.attempt) == name), None)
    pair = None if keeper is None else _pair(keeper)
    if pair is None:  # it has just ended
        return None
    _harm([pair[part]], harm)
    return Injected(kind=f"Spark {part} {harm}", target=name)


def _connect_harmed(
    part: str, harm: str, cluster: Cluster, run_id: str, rng: random.Random
) -> Injected | None:
    """Harm the driver of an operation on a Spark Connect server, or its runner."""
    found = _at_work(cluster, run_id, rng, _OPERATION)
    return None if found is None else _attempt_harmed(found, "Connect", part, harm)


def _server_harmed(harm: str, cluster: Cluster, run_id: str, rng: random.Random) -> Injected | None:
    """Harm a Spark Connect server during an operation, but not the processes that it started."""
    found = _at_work(cluster, run_id, rng, _OPERATION)
    if found is None:
        return None
    worker = found[1]["worker"]
    servers = servers_below(cluster.work_dirs()[worker] / "connect")
    _harm([psutil.Process(record.pid) for _, record in servers if record.lives], harm)
    return Injected(kind=f"Connect server {harm}", target=worker)


SPARK_KINDS = (
    *(
        Kind(partial(_idle_harmed, part, harm), SPARK_NAME, starts_run=True)
        for part in ("JVM", "keeper")
        for harm in ("killed", "paused")
    ),
    *(
        Kind(partial(_used_harmed, part, harm), SPARK_NAME)
        for part in ("driver", "runner", "JVM", "keeper")
        for harm in ("killed", "paused")
    ),
    *(Kind(partial(_connect_harmed, part, "killed"), SPARK_NAME) for part in ("driver", "runner")),
    *(Kind(partial(_server_harmed, harm), SPARK_NAME) for harm in ("killed", "paused")),
    *(Kind(fault, SPARK_NAME) for fault in (leader_killed, worker_killed, fork_server_killed)),
)

_SPARK_EVERY = 3


def deck(rng: random.Random, rounds: int) -> list[Kind]:
    """Kinds of faults in random order, each about equally often. Every third one hits Spark tasks."""
    plain, spark = _shuffled(rng, KINDS), _shuffled(rng, SPARK_KINDS)
    return [next(plain if number % _SPARK_EVERY else spark) for number in range(1, rounds + 1)]


def _shuffled(rng: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    while True:
        yield from rng.sample(kinds, len(kinds))


def _idle(folder: Path) -> Iterator[Mapping[str, psutil.Process]]:
    """The idle JVMs of a worker, with their keepers."""
    for place in folder.glob("*"):
        keeper = ProcessLock(place / LOCK).last_holder()
        if keeper is not None and not (place / "work" / "tmp").is_symlink():
            pair = _pair(keeper)
            if pair is not None:
                yield pair


def _pair(keeper: ProcessId) -> Mapping[str, psutil.Process] | None:
    """A keeper and its JVM, if both live."""
    if procfs.is_alive(keeper):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(keeper.pid)
            return next(({"keeper": process, "JVM": java} for java in process.children()), None)
    return None


def _at_work(
    cluster: Cluster, run_id: str, rng: random.Random, task: str
) -> tuple[str, Mapping[str, Any]] | None:
    """An attempt of a task, some time after the start of its code; None: the run ended before that.

    The code of an operation has started when the server runs its program.
    """
    while (found := victim(cluster, run_id, rng, task=task)) is not None:
        name = found[0].replace(f".{_OPERATION}.", f".program-of-{found[1]['number']}.")
        if f'"{name}"' in cluster.journal.read_text():
            moment(rng.uniform(0, _LONGEST_DELAY_S))
            return found
        moment(_LOOK_S)
    return None


def _attempt_harmed(found: tuple[str, Mapping[str, Any]], mode: str, part: str, harm: str) -> Injected | None:
    processes = runner_and_driver(*found)
    if processes is None:  # it has just ended
        return None
    runner, driver = processes
    _harm([runner if part == "runner" else driver], harm)
    if (part, harm) == ("runner", "killed"):
        until(f"the driver of {found[0]} to die with it", DRIVER_DIES_S, partial(is_gone, driver))
    return Injected(kind=f"{mode} {part} {harm}", target=found[0])


def _harm(victims: Sequence[psutil.Process], harm: str) -> None:
    if harm == "killed":
        _kill(victims)
        return
    with _paused(victims):
        moment(2 * SESSION.total_seconds())


def _kill(victims: Sequence[psutil.Process]) -> None:
    for process in victims:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def _paused(victims: Sequence[psutil.Process]) -> Iterator[None]:
    """SIGSTOP, then SIGCONT."""
    for process in victims:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                process.resume()
