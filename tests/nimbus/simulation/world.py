"""All parts of one simulated cluster, and the events while one of them is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from random import Random

from prometheus_client import CollectorRegistry

from nimbus.api.services import ApiServices
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.cluster.settings import ClusterCalendar, ClusterSettings, TeamShare
from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.telemetry.engine import EngineMetrics
from tests.nimbus.attempts.driver import Driver
from tests.nimbus.simulation.catalog import (
    CALENDAR,
    CALENDARS,
    NEWEST_SCHEMA,
    POOLS,
    RELEASES,
    first_due,
    first_records,
)
from tests.nimbus.simulation.clocks import START, Time
from tests.nimbus.simulation.cluster import Cluster
from tests.nimbus.simulation.dice import Dice
from tests.nimbus.simulation.election import Election
from tests.nimbus.simulation.host import Host
from tests.nimbus.simulation.ledger import Ledger
from tests.nimbus.simulation.operators import Operators
from tests.nimbus.simulation.processes import Process
from tests.nimbus.simulation.scheduler import Scheduler, policy_with
from tests.nimbus.simulation.storage import Storage
from tests.nimbus.simulation.story import Story
from tests.nimbus.simulation.worker import Worker
from tests.nimbus.simulation.zookeeper import Ensemble

KEEP_FINISHED = timedelta(seconds=60)
CLAIM_TIMEOUT = timedelta(seconds=90)
DEEPEST = 2
"""Deepest nesting of interruptions."""


@cache
def _metrics() -> EngineMetrics:
    return EngineMetrics(CollectorRegistry())


def _registration(number: int) -> SchedulerInfo:
    """The registration of a scheduler that knows the newest schema. It stays for the whole simulation."""
    return SchedulerInfo(
        id=f"s{number}",
        boot_id="b",
        host=HostId("h"),
        hostname="h",
        address="http://h",
        pid=1,
        version="1",
        started_at=START,
        reported_at=START,
        role=ElectionRole.QUEUED,
        newest_schema=NEWEST_SCHEMA,
    )


class World:
    """See the module."""

    def __init__(self, seed: int, *, lines: int | None = 80) -> None:
        self.rng = Random(seed)
        self.time = Time()
        self.story = Story(self.time, lines)
        self.dice = Dice(self.rng)
        self.metrics = _metrics()
        self.policy = policy_with(KEEP_FINISHED, CLAIM_TIMEOUT)
        self.storage = Storage(RELEASES)
        self.zookeeper = Ensemble(self.time)
        schedulers = tuple(_registration(number) for number in range(3))
        schema = 1 + seed % 2
        self.zookeeper.cluster.change(
            epoch=0,
            schema=schema,
            pipelines=first_records(),
            due=first_due(),
            schedulers=schedulers,
            settings=ClusterSettings(
                pools=POOLS,
                shares={"sales": TeamShare(weight=3, set_at=START)},
                calendars={CALENDAR: ClusterCalendar(days=CALENDARS[0], set_at=START)},
            ),
        )
        self.ledger = Ledger(self)
        self.zookeeper.on_slots = self.ledger.attempts.slots_changed
        self.election = Election(self)
        self.operators = Operators(self)
        self.schedulers = [Scheduler(self, f"s{number}") for number in range(3)]
        self.hosts = [Host(self, "h1"), Host(self, "h2")]
        self.cluster = Cluster(self)
        first, second = self.hosts
        self.workers = [
            Worker(self, first, "w1", 2),
            Worker(self, first, "w2", 1),
            Worker(self, second, "w3", 2),
        ]
        self.act: Callable[[], None] = lambda: None
        """Causes one random event; set by the current phase, storm or calm."""
        self.rests = 0
        """How often a leader at rest was compared with the store."""
        self.services: ApiServices | None = None
        """Those of `explained`, once it was used."""
        self.leading: SchedulerInfo | None = None
        """The registration of the leader that `explained` looks at."""
        self.drivers: dict[str, Driver] = {}
        """By the nonces of claims."""
        self._pids = 0
        self._depth = 0

    def interlude(self, whom: Scheduler, *, racing: bool) -> None:
        """Let others act while `whom` waits for a response, or is stopped."""
        if self._depth >= DEEPEST or not self.dice.is_interrupted(racing=racing):
            return
        self._depth += 1
        self.story.note(whom.name, "is held up")
        if racing:
            for process in self.processes():
                process.act()
        for _ in range(self.rng.randint(1, 8)):
            self.act()
        self.story.note(whom.name, "goes on")
        self._depth -= 1

    def processes(self) -> Sequence[Process]:
        """All living runners and executors."""
        return [process for host in (*self.hosts, self.cluster) for process in host.runners()]

    def computing(self) -> Iterator[AttemptId]:
        """The attempts whose drivers run."""
        for process in self.processes():
            yield from (shell.folder.attempt for shell in process.shells if shell.driver.runs)

    def pass_time(self, seconds: float) -> None:
        """Advance time, and expire sessions."""
        self.time.s += seconds
        self.zookeeper.tick()

    def worker_now(self) -> datetime:
        """The wall clock of the workers' hosts."""
        return START + timedelta(seconds=self.time.s)

    def next_pid(self) -> int:
        """The next process id."""
        self._pids += 1
        return self._pids

    def slots_of(self, worker: WorkerId) -> int:
        """The host of a current or former worker."""
        return next(one.slots for one in self.workers if one.id == worker)
