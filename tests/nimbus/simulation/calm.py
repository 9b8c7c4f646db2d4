"""The calm after the storm: after some more faults of hosts there are none, and everything must end."""

from __future__ import annotations

from collections.abc import Callable

from nimbus.domain.commands import (
    ActOnSelection,
    PausePipeline,
    ResumeRun,
    SetHold,
    SetPool,
    StopRun,
    UncordonWorker,
)
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Read
from nimbus.domain.data.reads import ReadError, missing, to_pin
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run
from tests.nimbus.simulation.catalog import POOLS, SPECS
from tests.nimbus.simulation.laws import Law, hold
from tests.nimbus.simulation.ledger_alerts import ENDED
from tests.nimbus.simulation.world import World

CALM_ROUNDS = 250
GUST_ROUNDS = (4, 24)
GUSTS = 2
"""In each round."""
PROCESS_ROUNDS = 30
SELECTION_ROUNDS = 100
KEPT_ROUNDS = 8
"""Kept runs go on for so many calm rounds."""


def calm_down(world: World, gust: Callable[[], None]) -> None:
    """Stop new faults; existing damage may stay. Everything must end.

    Most attempts run now, so for a while faults of hosts, workers and attempts still happen.

    Args:
        world: The cluster.
        gust: Causes such a fault.

    Raises:
        LawBrokenError: it does not.
    """
    world.story.note("weather", "is calm now")
    _mend_schedulers(world)
    _end_selections(world)
    for spec in SPECS:  # else schedules would never let it end
        if spec.schedule is not None:
            world.operators.submit(PausePipeline(pipeline=spec.name))
    _lift_limits(world)
    for _ in range(world.rng.randint(*GUST_ROUNDS)):
        world.story.step += 1
        _round(world)
        for _ in range(GUSTS):
            gust()
        world.pass_time(world.rng.choice((0.5, 1.0, 2.0, 4.0, 7.0)))
    _mend_hosts(world)
    for number in range(CALM_ROUNDS):
        world.story.step += 1
        _stop_kept_runs(world, number)
        _round(world)
        if _is_over(world):
            break
        world.pass_time((0.5, 3.0, 10.0, 40.0)[number % 4])
    _end_processes(world)
    found = world.zookeeper.world
    hold(Law.COMMAND_ANSWERED, not found.commands, sorted(found.commands))
    hold(Law.ENDS, not found.runs, {key: run.state.value for key, run in found.runs.items()})
    hold(Law.ARCHIVED, not found.slots and not found.orders, "left behind:", found.slots, found.orders)
    hold(Law.ARCHIVED, world.storage.history == world.ledger.runs.all, "history lacks a run")
    world.ledger.close()


def _end_selections(world: World) -> None:
    """Wait until each target has its command: later commands would be decided before these."""
    for _ in range(SELECTION_ROUNDS):
        waiting = world.zookeeper.world.commands.values()
        if not any(isinstance(one.command, ActOnSelection) for one in waiting):
            return
        _round(world)
        world.pass_time(1.0)


def _lift_limits(world: World) -> None:
    """End what keeps work from going on: small pools, cordons, holds and pauses."""
    for pool, size in POOLS.items():
        world.operators.submit(SetPool(pool=pool, size=size))
    for worker in sorted({one.id for one in world.workers}):
        world.operators.submit(UncordonWorker(worker=worker))
    for hold_name in ("freeze", "night"):
        world.operators.submit(SetHold(name=hold_name, hold=None))
    for run in world.ledger.runs.live:
        world.operators.submit(ResumeRun(run_id=run))


def _stop_kept_runs(world: World, calm_rounds: int) -> None:
    """They do not end by themselves; nor do runs that wait for a dataset that nobody publishes any more."""
    for run in world.ledger.runs.live.values() if calm_rounds >= KEPT_ROUNDS else ():
        asked = StopRun(run_id=run.id, reason="calm")
        datasets = world.zookeeper.world.datasets
        waits = any(
            lifecycle.is_ready(run, task) and _lacks(read, run, datasets.get(read.dataset))
            for name, task in run.tasks.items()
            for read in to_pin(run, name)
        )
        endless = run.keeps_running or waits
        if endless and run.verdict is None and asked not in world.ledger.submitted.values():
            world.operators.submit(asked)


def _lacks(read: Read, run: Run, dataset: Dataset | None) -> bool:
    try:
        return bool(missing(read, run, dataset))
    except ReadError:
        return False  # the leader fails its task


def _end_processes(world: World) -> None:
    """What runs attempts that nobody waits for any more ends by itself."""
    for _ in range(PROCESS_ROUNDS):
        if not any(process.shells for process in world.processes()):
            return
        world.pass_time(2.0)
        for process in world.processes():
            process.act()
    left = [str(shell.folder.attempt) for process in world.processes() for shell in process.shells]
    hold(Law.NOTHING_LEFT, not left, left)


def _mend_schedulers(world: World) -> None:
    """Restart at least one."""
    world.dice.storm = False
    world.storage.available = world.zookeeper.cluster.available = True
    for number, scheduler in enumerate(world.schedulers):
        scheduler.paused = scheduler.cut = False
        if not scheduler.alive and (number == 0 or world.rng.random() < 0.5):
            scheduler.start()


def _mend_hosts(world: World) -> None:
    """Restart what is needed for work to end: at least one worker."""
    rng = world.rng
    world.dice.gusts = False
    world.cluster.answers = True
    for host in world.hosts:
        host.cut = host.full = False
        host.up = host.up or rng.random() < 0.5
    for process in world.processes():
        process.cut = process.paused = process.silent = False
    for worker in world.workers:
        worker.paused = False
        if not worker.alive and worker.host.up and rng.random() < 0.5:
            worker.start_again()
    if not any(worker.alive and not worker.draining and worker.host.up for worker in world.workers):
        worker = rng.choice(world.workers)
        worker.host.up = True
        worker.start_again()


def _round(world: World) -> None:
    for scheduler in tuple(world.election.losers):
        world.election.tell(scheduler)
    for scheduler in world.schedulers:
        world.election.elect(scheduler)
        scheduler.act()
        for _ in range(4):
            scheduler.work()
    for worker in world.workers:
        worker.read()
        worker.work()
    world.cluster.act()
    for process in world.processes():
        process.act()


def _is_over(world: World) -> bool:
    found = world.zookeeper.world
    told = all(alert.state in ENDED for alert in found.alerts.values())
    return told and not (found.commands or found.runs or found.slots or found.orders)
