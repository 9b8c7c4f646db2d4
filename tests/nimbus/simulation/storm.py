"""The storm: the random events of each step, with their frequencies. Gusts are those of hosts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from random import Random

from nimbus.domain.commands import StopRun
from tests.nimbus.simulation.processes import Process
from tests.nimbus.simulation.worker import Worker
from tests.nimbus.simulation.world import World

MAX_WORKERS = 6


class _Mixture:
    """Events with their frequencies."""

    def __init__(self, acts: list[tuple[int, Callable[[], None]]]) -> None:
        self._do = [act for _, act in acts]
        self._weights = list(accumulate(weight for weight, _ in acts))

    def pick(self, rng: Random) -> Callable[[], None]:
        return rng.choices(self._do, cum_weights=self._weights)[0]


class Storm:
    """Causes one random event at each step."""

    def __init__(self, world: World) -> None:
        self._world, self._rng = world, world.rng
        self._all, self._of_hosts = _Mixture(self._acts()), _Mixture(self._gusts())

    def act(self) -> None:
        """Cause one random event."""
        self._world.story.step += 1
        self._all.pick(self._rng)()

    def gust(self) -> None:
        """Cause one random event of hosts, workers and attempts."""
        if self._rng.random() < 0.05 and (live := list(self._world.ledger.runs.live)):
            self._world.operators.submit(StopRun(run_id=self._rng.choice(live), reason="gust"))
        self._of_hosts.pick(self._rng)()

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
            *self._gusts(),
            (1, lambda: self._storage_is(available=False)),
            (3, lambda: self._storage_is(available=True)),
            (1, lambda: self._zookeeper_is(available=False)),
            (6, lambda: self._zookeeper_is(available=True)),
        ]

    def _gusts(self) -> list[tuple[int, Callable[[], None]]]:
        world, pick = self._world, self._rng.choice
        return [
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
            (2, self._kill_process),
            (3, self._hush_process),
            (1, self._ask_process_to_leave),
            (2, self._kill_starter),
            (1, lambda: self._cluster(answers=False)),
            (4, lambda: self._cluster(answers=True)),
            (1, lambda: self._disk_is(full=True)),
            (5, lambda: self._disk_is(full=False)),
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
        self._world.cluster.act()
        if busy := self._busy():
            self._rng.choice(busy).act()
            self._rng.choice(busy).act()

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
        if len(self._world.workers) < MAX_WORKERS:
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
        for host in self._world.hosts:
            host.cut = False
        for scheduler in self._world.schedulers:
            scheduler.cut = False
        for process in self._world.processes():
            process.cut = process.paused = process.silent = False

    def _busy(self) -> list[Process]:
        return [process for process in self._world.processes() if process.shells]

    def _kill_process(self) -> None:
        if busy := self._busy():
            process = self._rng.choice(busy)
            attempts = ", ".join(str(shell.folder.attempt) for shell in process.shells)
            self._world.story.note(process.host.id, "loses the process of", attempts)
            process.die()

    def _hush_process(self) -> None:
        if busy := self._busy():
            how = self._rng.choice(("cut", "paused", "silent"))
            setattr(self._rng.choice(busy), how, True)

    def _ask_process_to_leave(self) -> None:
        if busy := self._busy():
            self._rng.choice(busy).leave()

    def _kill_starter(self) -> None:
        if busy := self._busy():
            self._rng.choice(busy).kill_starter()

    def _cluster(self, *, answers: bool) -> None:
        self._world.cluster.answers = answers
        self._world.story.note("cluster", "answers" if answers else "does not answer")

    def _disk_is(self, *, full: bool) -> None:
        host = self._rng.choice(self._world.hosts)
        host.full = full
        self._world.story.note(host.id, "has a full disk" if full else "has room on its disk")

    # -- shared

    def _storage_is(self, *, available: bool) -> None:
        self._world.storage.available = available
        self._world.story.note("storage", "is there" if available else "is away")

    def _zookeeper_is(self, *, available: bool) -> None:
        self._world.zookeeper.cluster.available = available
        self._world.story.note("zookeeper", "is there" if available else "is away")
