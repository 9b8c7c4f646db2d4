"""The storm: the random events of each step, with their frequencies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from tests.nimbus.simulation.worker import Worker
from tests.nimbus.simulation.world import World

MOST_WORKERS = 6


class Storm:
    """Causes one random event at each step."""

    def __init__(self, world: World) -> None:
        self._world, self._rng = world, world.rng
        acts = self._acts()
        self._do = [act for _, act in acts]
        self._weights = list(accumulate(weight for weight, _ in acts))

    def act(self) -> None:
        """Cause one random event."""
        self._world.story.step += 1
        self._rng.choices(self._do, cum_weights=self._weights)[0]()

    def _acts(self) -> list[tuple[int, Callable[[], None]]]:
        world, pick = self._world, self._rng.choice
        return [
            (40, self._leader_acts),
            (6, lambda: pick(world.schedulers).act()),
            (8, self._elect),
            (8, lambda: pick(world.schedulers).work()),
            (10, lambda: pick(world.workers).read()),
            (10, lambda: pick(world.workers).work()),
            (22, self._work),
            (46, self._run),
            (18, self._pass_time),
            (12, world.operators.ask),
            (1, world.operators.delete_one),
            (3, self._tell_losers),
            (2, self._depose),
            (2, self._kill_scheduler),
            (4, self._restart_scheduler),
            (2, self._pause_scheduler),
            (3, self._resume_schedulers),
            (1, self._cut_scheduler),
            (4, self._step_clock),
            (2, self._kill_worker),
            (5, self._restart_worker),
            (1, self._pause_worker),
            (2, self._resume_workers),
            (1, lambda: pick(world.workers).drain()),
            (1, self._new_worker),
            (1, self._crash_host),
            (4, self._start_host),
            (1, self._cut_host),
            (3, self._heal),
            (2, self._kill_runner),
            (2, self._hush_runner),
            (1, lambda: self._storage_is(available=False)),
            (3, lambda: self._storage_is(available=True)),
            (1, lambda: self._zookeeper_is(available=False)),
            (6, lambda: self._zookeeper_is(available=True)),
        ]

    # -- ordinary life

    def _leader_acts(self) -> None:
        leader = self._world.election.holder
        (leader or self._rng.choice(self._world.schedulers)).act()

    def _elect(self) -> None:
        self._world.election.elect(self._rng.choice(self._world.schedulers))

    def _work(self) -> None:
        worker = self._rng.choice(self._world.workers)
        worker.read()
        worker.work()

    def _run(self) -> None:
        if runners := self._world.runners():
            runner = self._rng.choice(runners)
            slots = self._world.zookeeper.world.slots.get(runner.folder.attempt)
            runner.act(self._world.dice.outcome(stop_requested=slots is not None and slots.stop_requested))

    def _pass_time(self) -> None:
        self._world.pass_time(self._rng.choice((0.3, 1.0, 2.0, 4.0, 4.0, 8.0, 35.0)))

    def _tell_losers(self) -> None:
        for scheduler in tuple(self._world.election.losers):
            if scheduler.reaches_zookeeper():
                self._world.election.tell(scheduler)

    # -- schedulers

    def _depose(self) -> None:
        if self._world.election.holder is not None:
            self._world.election.depose(self._world.election.holder)

    def _kill_scheduler(self) -> None:
        scheduler = self._rng.choice(self._world.schedulers)
        if scheduler.alive:
            self._world.story.note(scheduler.name, "is killed")
            scheduler.kill()

    def _restart_scheduler(self) -> None:
        scheduler = self._rng.choice(self._world.schedulers)
        if not scheduler.alive and not scheduler.inside:
            self._world.story.note(scheduler.name, "starts")
            scheduler.start()

    def _pause_scheduler(self) -> None:
        scheduler = self._rng.choice(self._world.schedulers)
        self._world.story.note(scheduler.name, "is stopped")
        scheduler.paused = True

    def _resume_schedulers(self) -> None:
        for scheduler in self._world.schedulers:
            scheduler.paused = False

    def _cut_scheduler(self) -> None:
        scheduler = self._rng.choice(self._world.schedulers)
        self._world.story.note(scheduler.name, "is cut off")
        scheduler.cut = True

    def _step_clock(self) -> None:
        scheduler = self._rng.choice(self._world.schedulers)
        scheduler.clock.wall_offset_s = self._rng.choice((0.0, 0.0, 2.0, -2.0, 40.0, -40.0, 400.0, -400.0))
        self._world.story.note(scheduler.name, "has its clock stepped to", scheduler.clock.wall_offset_s)

    # -- workers, hosts, runners

    def _kill_worker(self) -> None:
        worker = self._rng.choice(self._world.workers)
        self._world.story.note(worker.id, "is killed")
        if self._rng.random() < 0.7:
            worker.die()
        else:
            worker.leave()

    def _restart_worker(self) -> None:
        worker = self._rng.choice(self._world.workers)
        if not worker.alive and worker.host.up:
            worker.start_again()

    def _pause_worker(self) -> None:
        self._rng.choice(self._world.workers).paused = True

    def _resume_workers(self) -> None:
        for worker in self._world.workers:
            worker.paused = False

    def _new_worker(self) -> None:
        """A worker is replaced by one with another id on its host."""
        if len(self._world.workers) < MOST_WORKERS:
            old = self._rng.choice(self._world.workers)
            if old.alive and old.host.up:
                old.die()
                name = f"w{len(self._world.workers) + 1}"
                self._world.story.note(name, "replaces", old.id)
                self._world.workers.append(Worker(self._world, old.host, name, old.slots))

    def _crash_host(self) -> None:
        host = self._rng.choice(self._world.hosts)
        if host.up:
            self._world.story.note(host.id, "crashes")
            host.crash()
            for worker in self._world.workers:
                if worker.host is host and worker.alive:
                    worker.die()

    def _start_host(self) -> None:
        self._rng.choice(self._world.hosts).up = True

    def _cut_host(self) -> None:
        host = self._rng.choice(self._world.hosts)
        self._world.story.note(host.id, "is cut off")
        host.cut = True

    def _heal(self) -> None:
        for one in (*self._world.hosts, *self._world.schedulers, *self._world.runners()):
            one.cut = False
        for runner in self._world.runners():
            runner.paused = False

    def _kill_runner(self) -> None:
        if runners := self._world.runners():
            runner = self._rng.choice(runners)
            self._world.story.note(runner.folder.worker, "loses the runner of", runner.folder.attempt)
            runner.die()

    def _hush_runner(self) -> None:
        if runners := self._world.runners():
            runner = self._rng.choice(runners)
            runner.cut = self._rng.random() < 0.5
            runner.paused = not runner.cut

    # -- shared

    def _storage_is(self, *, available: bool) -> None:
        self._world.storage.available = available
        self._world.story.note("storage", "is there" if available else "is away")

    def _zookeeper_is(self, *, available: bool) -> None:
        self._world.zookeeper.cluster.available = available
        self._world.story.note("zookeeper", "is there" if available else "is away")
