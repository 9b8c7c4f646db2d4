"""Laws of the engine under crashes: no run is lost and no task done twice, whatever dies when.

The whole cluster is played in memory: one step is one thing that happens. A "zombie" leader goes on writing
with its old epoch, as one does that was stopped and woken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from nimbus.adapters.memory_store import MemoryCluster, MemoryLeaderStore
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.commands import QueuedCommand, StartRun
from nimbus.domain.ids import (
    AttemptId,
    CommandId,
    HostId,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipeline import PipelineSpec, RetryPolicy, TaskKind, TaskSpec
from nimbus.domain.run import Outcome, RunState, TaskState
from nimbus.domain.slots import Claim, End, Slots
from nimbus.domain.workers import Assignment, AssignmentKind, WorkerInfo
from nimbus.engine.decision import Effect
from nimbus.engine.facts import Policy
from nimbus.engine.news import AttemptChanged, CommandsChanged, News, WorkersChanged
from nimbus.engine.reign import Reign
from nimbus.ports import FencedOutError
from nimbus.telemetry.engine import EngineMetrics

START = datetime(2026, 3, 1, tzinfo=UTC)
NAME = PipelineName("p")
RUN_IDS = tuple(RunId(f"p-{number}") for number in range(5))
HOSTS = {WorkerId("w1"): HostId("h1"), WorkerId("w2"): HostId("h1"), WorkerId("w3"): HostId("h2")}


@dataclass
class HeldClock:
    time: datetime = START

    def now(self) -> datetime:
        return self.time

    def elapsed_s(self) -> float:
        return (self.time - START).total_seconds()


@dataclass
class Driver:
    """A process that runs an attempt: it computes until it ends or is killed."""

    attempt: AttemptId
    worker: WorkerId
    computing: bool = True


@dataclass
class Play:
    """The cluster and everybody in it."""

    clock: HeldClock = field(default_factory=HeldClock)
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    reign: Reign | None = None
    zombies: list[Reign] = field(default_factory=list)
    drivers: dict[AttemptId, Driver] = field(default_factory=dict)
    executions: list[AttemptId] = field(default_factory=list)
    read: dict[WorkerId, dict[AttemptId, Assignment]] = field(default_factory=dict)
    """Orders as each worker last read them: it may act on them long after they were taken back."""
    accepted_from_zombies: int = 0

    def start(self) -> None:
        specs = tuple(
            TaskSpec(
                name=TaskName(name),
                kind=TaskKind.PYTHON,
                script="x.py",
                needs=tuple(TaskName(need) for need in needs),
                retries=RetryPolicy(limit=1, delay=timedelta(seconds=1)),
            )
            for name, needs in (("a", ""), ("b", ""), ("c", "ab"), ("d", "c"), ("e", "c"), ("f", "de"))
        )
        spec = PipelineSpec(name=NAME, tasks=specs)
        digest = ReleaseDigest("0" * 64)
        record = PipelineRecord(
            name=NAME,
            state=PipelineState.ACTIVE,
            published=digest,
            published_spec=spec,
            release=digest,
            spec=spec,
            schedule_position=START,
            updated_at=START,
        )
        commands = {
            CommandId(f"cmd-{number}"): QueuedCommand(
                id=CommandId(f"cmd-{number}"),
                command=StartRun(pipeline=NAME, run_id=run_id),
                submitted_at=START,
            )
            for number, run_id in enumerate(RUN_IDS)
        }
        self.cluster.change(epoch=0, pipelines={NAME: record}, commands=commands)
        for worker in HOSTS:
            self.register(worker)

    # -- leaders

    def elect(self) -> None:
        if self.reign is not None:
            self.zombies.append(self.reign)
        self.cluster.change(epoch=self.cluster.world.epoch + 1)
        epoch = self.cluster.world.epoch
        self.reign = Reign(
            epoch=epoch,
            store=MemoryLeaderStore(self.cluster, epoch),
            inbox=lambda _news: None,
            start_effect=self._ignore,
            policy=Policy(max_mishaps=1000),
            clock=self.clock,
            metrics=EngineMetrics(CollectorRegistry()),
        )
        self.reign.recover()

    @staticmethod
    def _ignore(_effect: Effect) -> None:
        """History is not what this play is about."""

    def lead(self, most: int) -> None:
        """Let the leader take at most `most` decisions: being interrupted after any write is the point."""
        if self.reign is None:
            return
        self.reign.take(self.news(self.reign))
        from nimbus.engine.rules import next_decision

        for _ in range(most):
            decision = next_decision(self.reign.facts, self.clock.now())
            if decision is None:
                return
            assert not (decision.writes and decision.effects), "a lost reply would lose the effects"
            self.reign._do(decision)  # one decision at a time is what no public method does

    def zombie_acts(self, index: int) -> None:
        if not self.zombies:
            return
        zombie = self.zombies[index % len(self.zombies)]
        before = len(self.cluster.commits)
        try:
            zombie.take(self.news(zombie))
            zombie.decide()
        except FencedOutError:
            pass
        self.accepted_from_zombies += len(self.cluster.commits) - before

    def news(self, reign: Reign) -> tuple[News, ...]:
        attempts = tuple(AttemptChanged(attempt) for attempt in reign.facts.slots)
        return (CommandsChanged(), WorkersChanged(), *attempts)

    # -- workers and drivers

    def register(self, worker: WorkerId) -> None:
        info = WorkerInfo(
            id=worker, host=HOSTS[worker], hostname="h", pid=1, slots=2, version="1", started_at=START
        )
        self.cluster.change(workers={**self.cluster.world.workers, worker: info})

    def kill_worker(self, worker: WorkerId) -> None:
        left = {k: v for k, v in self.cluster.world.workers.items() if k != worker}
        self.cluster.change(workers=left)

    def read_orders(self, worker: WorkerId) -> None:
        """A live worker reads its orders."""
        world = self.cluster.world
        if worker in world.workers:
            self.read[worker] = {a: order for (owner, a), order in world.orders.items() if owner == worker}

    def work(self, worker: WorkerId) -> None:
        """A worker, even one that ZooKeeper takes for dead, acts on what it read."""
        for attempt, order in self.read.get(worker, {}).items():
            if attempt not in self.cluster.world.slots:
                continue
            if order.kind is AssignmentKind.RUN and attempt not in self.drivers:
                self.launch(attempt, worker)
            elif self.gone(attempt) and self.cluster.world.slots[attempt].claim is not None:
                self.fill_end(attempt, Outcome.LOST)

    def gone(self, attempt: AttemptId) -> bool:
        driver = self.drivers.get(attempt)
        return driver is not None and not driver.computing

    def launch(self, attempt: AttemptId, worker: WorkerId) -> None:
        """The driver claims before user code: the first in the slot wins."""
        slots = self.cluster.world.slots[attempt]
        driver = Driver(attempt, worker, computing=slots.claim is None)
        self.drivers[attempt] = driver
        if slots.claim is not None:
            return
        claim = Claim(
            attempt=str(attempt), worker=worker, host=HOSTS[worker], pid=1, claimed_at=self.clock.now()
        )
        self.cluster.set_slots(attempt, replace(slots, claim=claim, beating=True))
        others = [
            driver
            for other, driver in self.drivers.items()
            if (other.run, other.task) == (attempt.run, attempt.task) and other != attempt
        ]
        assert not any(d.computing and self.open(d.attempt) for d in others), "two attempts overlap"
        self.executions.append(attempt)

    def open(self, attempt: AttemptId) -> bool:
        slots = self.cluster.world.slots.get(attempt)
        return slots is not None and slots.end is None

    def finish(self, attempt: AttemptId, outcome: Outcome) -> None:
        if self.drivers[attempt].computing:
            self.drivers[attempt].computing = False
            self.fill_end(attempt, outcome)
            self.hush(attempt)

    def kill_runner(self, attempt: AttemptId) -> None:
        if self.drivers[attempt].computing:
            self.drivers[attempt].computing = False
            self.hush(attempt)

    def partition(self, attempt: AttemptId) -> None:
        """The runner's session ends, though its driver computes on: it can still reach ZooKeeper later."""
        self.hush(attempt)

    def hush(self, attempt: AttemptId) -> None:
        slots = self.cluster.world.slots.get(attempt)
        if slots is not None:
            self.cluster.set_slots(attempt, replace(slots, beating=False))

    def fill_end(self, attempt: AttemptId, outcome: Outcome) -> None:
        slots = self.cluster.world.slots.get(attempt, Slots())
        if slots.end is None and attempt in self.cluster.world.slots:
            end = End(
                attempt=str(attempt),
                outcome=outcome,
                written_by="runner",
                ended_at=self.clock.now(),
                output=str(attempt) if outcome is Outcome.SUCCEEDED else None,
            )
            self.cluster.set_slots(attempt, replace(slots, end=end))

    # -- the laws

    def check(self) -> None:
        assert self.accepted_from_zombies == 0, "a deposed leader wrote"
        commands = (queued.command for queued in self.cluster.world.commands.values())
        waiting = {command.run_id for command in commands if isinstance(command, StartRun)}
        assert waiting | set(self.cluster.world.runs) == set(RUN_IDS), "a command either waits or is done"
        good = Counter((attempt.run, attempt.task) for attempt in self.good_ends())
        for run in self.cluster.world.runs.values():
            for name, task in run.tasks.items():
                assert good[run.id, name] <= 1, f"{name} has two successful ENDs"
                if task.state is TaskState.SUCCEEDED:
                    assert good[run.id, name] == 1

    def good_ends(self, run: RunId | None = None) -> list[AttemptId]:
        return [
            attempt
            for attempt, slots in self.cluster.world.slots.items()
            if slots.end is not None and slots.end.outcome is Outcome.SUCCEEDED
            if run in (None, attempt.run)
        ]


ACTS = (
    ["lead"] * 5 + ["work"] * 4 + ["read_orders"] * 3 + ["finish"] * 3 + ["register"] * 2 + ["time"] * 3
    + ["fail", "kill_runner", "partition", "kill_worker", "elect", "zombie"]
)  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_no_run_is_lost_and_no_task_is_done_twice_whatever_dies_when(seed: int) -> None:
    random = Random(seed)
    play = Play()
    play.start()
    play.elect()
    for _ in range(300):
        act(play, random)
        play.check()
    calm_down(play)


def act(play: Play, random: Random) -> None:
    """One thing happens."""
    chosen = random.choice(ACTS)
    match chosen:
        case "lead":
            play.lead(random.randint(1, 4))
        case "elect":
            play.elect()
        case "zombie":
            play.zombie_acts(random.randrange(6))
        case "time":
            play.clock.time += timedelta(seconds=random.choice([1, 4, 35, 130]))
        case "register" | "kill_worker" | "work" | "read_orders":
            getattr(play, chosen)(random.choice(sorted(HOSTS)))
        case _ if play.drivers:
            attempt = random.choice(sorted(play.drivers))
            if chosen in ("kill_runner", "partition"):
                getattr(play, chosen)(attempt)
            else:
                failures = play.cluster.world.runs[attempt.run].tasks[attempt.task].failures
                bad = chosen == "fail" and not failures
                play.finish(attempt, Outcome.FAILED if bad else Outcome.SUCCEEDED)


def calm_down(play: Play) -> None:
    """After the storm, with everybody alive, all runs come to their end by themselves."""
    play.elect()
    for _ in range(300):
        for worker in HOSTS:
            play.register(worker)
            play.read_orders(worker)
            play.work(worker)
        for attempt in sorted(play.drivers):
            play.finish(attempt, Outcome.SUCCEEDED)
        play.clock.time += timedelta(seconds=10)
        play.lead(50)
        play.check()
    assert set(play.cluster.world.runs) == set(RUN_IDS)
    for run in play.cluster.world.runs.values():
        assert run.state is RunState.SUCCEEDED
        assert {a.task for a in play.good_ends(run.id)} == set(run.tasks)
    assert len(set(play.executions)) == len(play.executions), "an attempt's user code ran twice"
