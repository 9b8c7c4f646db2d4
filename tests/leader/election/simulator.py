"""Elections in virtual time: real cores, all else simulated, random faults. Equal seeds give equal runs.

    python -m tests.leader.election --seeds 10000 --jobs 2

Each participant runs the election's own code request by request. Between any two requests, any fault can hit
any participant. At the end all faults are repaired, and a participant must lead soon.
`tests.leader.election.laws` checks the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from leader.errors import RecordError
from leader.local.zookeeper import TreeNode
from leader.protocol import requests as rq
from leader.protocol.paths import ElectionPaths
from leader.protocol.terms import LeaderInfo, decode_leader
from tests.leader.election.ensemble import Ensemble
from tests.leader.election.faults import Faults
from tests.leader.election.history import Kind, Moment, Violation
from tests.leader.election.laws import check
from tests.leader.election.process import Process
from tests.leader.election.stage import epoch_in
from tests.leader.election.surroundings import WORK
from tests.leader.election.world import Settings, World

ROOT = "/election"

_PATIENCE = timedelta(milliseconds=250)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    violations: list[Violation]
    history: list[Moment]
    story: list[tuple[timedelta, str, str]]
    calm_after: float
    """Time from the last repair until there was no problem, in session timeouts."""

    @property
    def faults(self) -> list[str]:
        """The injected faults."""
        return [moment.note for moment in self.history if moment.kind is Kind.FAULT]

    @property
    def leaderships(self) -> int:
        """Number of leaderships."""
        return sum(moment.kind is Kind.CONFIRMED for moment in self.history)


class Simulator:
    """See the module.

    Args:
        seed: Seed of all random choices.
        settings: Size, and kinds and number of faults.
        telling: True to keep a story for people.
    """

    def __init__(self, seed: int, settings: Settings | None = None, *, telling: bool = False) -> None:
        self.seed, self.settings = seed, settings or Settings()
        self.world = World(seed, self.settings, telling=telling)
        self.ensemble = Ensemble(self.world)
        self.ensemble.witness = self._witnessed
        self.paths = ElectionPaths(ROOT)
        self.highest_epoch = 0
        self.lay_out()
        self._boots = 0
        self._processes: list[Process] = []
        for number in range(self.world.rng.choice(self.settings.participants)):
            self._processes.append(self._start(f"p{number}"))
        self._faults = Faults(self)

    def run(self) -> Outcome:
        """Run to the end, and check the history."""
        world, rng = self.world, self.world.rng
        self._run_for(world.session_timeout * rng.random() * 0.5)
        for _ in range(rng.randint(*self.settings.faults)):
            self._run_for(world.session_timeout * min(rng.expovariate(1 / self.settings.gap), 3.0))
            self._faults.strike()
        self._run_for(world.session_timeout * rng.random() * 2)
        self._faults.mend()
        healed = world.clock.now
        bound = world.session_timeout * self.settings.bound
        self._settle(healed + bound)
        took = (world.clock.now - healed) / world.session_timeout
        self._run_for(world.session_timeout)
        self._settle(healed + bound)
        self._last_look()
        world.note(Kind.DENIED, "nobody", note="the end")
        violations = check(world.history, bound=bound, guarded=True)
        return Outcome(self.seed, violations, world.history, world.story, took)

    # --- used by faults ---------------------------------------------------------------------------

    def processes(self) -> list[Process]:
        """The newest process of each participant, alive or not."""
        return list(self._processes)

    def living(self) -> list[Process]:
        """The live processes. There is always one, because a fault needs a victim."""
        return [one for one in self._processes if one.alive] or self._processes[:1]

    def restart(self, process: Process) -> None:
        """Start the participant of a process again, if it is dead and was not restarted yet."""
        if not process.alive and process in self._processes:
            self._processes[self._processes.index(process)] = self._start(process.name)

    def lay_out(self) -> None:
        """Create the nodes that exist before any election."""
        zookeeper, queue = self.ensemble.zookeeper, self.paths.queue
        zookeeper.write(rq.Create(WORK))
        if self.world.chance(0.1):  # the sequence number is about to overflow
            zookeeper.write(rq.EnsurePath(queue))
            node = zookeeper.tree.get(queue) or TreeNode()
            zookeeper.tree.apply({queue: node._replace(made=(1 << 31) - 3)})

    # --- internal ---------------------------------------------------------------------------------

    def _start(self, name: str) -> Process:
        self._boots += 1
        return Process(self.world, self.ensemble, ROOT, name, f"boot{self._boots}")

    def _run_for(self, duration: timedelta) -> None:
        clock, limit = self.world.clock, self.world.clock.now + duration
        while clock.step(limit):
            for process in self._processes:
                if process.alive and not process.paused:
                    process.sample()

    def _witnessed(self, request: rq.Request, session_id: int, zxid: int) -> None:
        """Called when a client's write was accepted."""
        if isinstance(request, rq.Transaction):
            for operation in request.operations:
                self._wrote(operation, session_id, zxid)

    def _wrote(self, operation: rq.Operation, session_id: int, zxid: int) -> None:
        if isinstance(operation, rq.Create | rq.SetData):
            if operation.path == WORK:
                self._attributed(Kind.WROTE, session_id, int(operation.data), zxid)
            elif operation.path == self.paths.epoch:
                epoch = epoch_in(operation.data)
                self.highest_epoch = max(self.highest_epoch, epoch)
                self._attributed(Kind.TAKEN, session_id, epoch, zxid)
            elif operation.path == self.paths.leader:
                info = decode_leader(operation.data, operation.path)
                self.world.note(
                    Kind.PUBLISHED, info.participant.id, info.epoch, boot=info.participant.boot_id, order=zxid
                )

    def _attributed(self, kind: Kind, session_id: int, epoch: int, zxid: int) -> None:
        owner = self._owner_of(session_id)
        name, boot = ("somebody", "") if owner is None else (owner.name, owner.boot)
        self.world.note(kind, name, epoch, boot=boot, order=zxid)

    def _owner_of(self, session_id: int) -> Process | None:
        return next((one for one in self._processes if one.session.session_id == session_id), None)

    # --- the end ----------------------------------------------------------------------------------

    def _settle(self, limit: timedelta) -> None:
        while not self._is_well() and self.world.clock.now < limit:
            self._run_for(_PATIENCE)
            for process in self.processes():
                self.restart(process)  # processes that were asked to close have done so by now

    def _is_well(self) -> bool:
        return not any(True for _ in self._complaints())

    def _last_look(self) -> None:
        for kind, who, note in self._complaints():
            self.world.note(kind, who, note=note)

    def _complaints(self) -> Iterator[tuple[Kind, str, str]]:
        tree, queue = self.ensemble.zookeeper.tree, self.paths.queue
        names = [] if tree.get(queue) is None else tree.children(queue)
        owners = [node.owner for name in names if (node := tree.get(f"{queue}/{name}")) is not None]
        for process in self._processes:
            mine = owners.count(process.session.session_id or -1)
            if mine == 0:
                yield Kind.ABSENT, process.name, f"boot {process.boot}"
            if mine > 1:
                yield Kind.ORPHAN, process.name, f"{mine} latch nodes of one session"
        known = {process.session.session_id for process in self._processes}
        for owner in set(owners) - known:
            if owner in self.ensemble.zookeeper.sessions:
                yield Kind.ORPHAN, "nobody", f"latch node of session {owner:x}"
        yield from self._untruths()

    def _untruths(self) -> Iterator[tuple[Kind, str, str]]:
        published = self._published()
        leading = [one for one in self._processes if one.core.term.leadership() is not None]
        if not leading:
            yield Kind.MISLED, "nobody", "no participant leads"
        for process in leading:
            leadership = process.core.term.leadership()
            if published is None or leadership is None or published.epoch != leadership.epoch:
                yield Kind.MISLED, process.name, f"leads, but the leader node contains {published}"

    def _published(self) -> LeaderInfo | None:
        node = self.ensemble.zookeeper.tree.get(self.paths.leader)
        try:
            return None if node is None else decode_leader(node.data, self.paths.leader)
        except RecordError:
            return None
