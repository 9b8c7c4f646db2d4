"""Updates open attempts, with what they take of workers and pools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.supervision import shows_life
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.ids import AttemptId, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Attempt
from nimbus.domain.starts.admission import Gate, need_of
from nimbus.engine.ready import ReadyTasks
from nimbus.engine.work_queue import Instant, Key, WorkQueue
from nimbus.engine.workers import Workers


class PoolUse:
    """The use of all pools. It is counted from open attempts, so that nothing can leak."""

    def __init__(self) -> None:
        self._taken: dict[AttemptId, tuple[str, Mapping[str, int]]] = {}
        """The team of each attempt that uses a pool, and the amounts."""
        self._used: Counter[str] = Counter()
        self._by_team: Counter[tuple[str, str]] = Counter()

    def used(self, pool: str) -> int:
        """How much of a pool open attempts take."""
        return self._used[pool]

    def used_by(self, team: str, pool: str) -> int:
        """How much of a pool open attempts of a team take."""
        return self._by_team[team, pool]

    def by_teams(self) -> dict[str, dict[str, int]]:
        """How much open attempts take, by team and pool."""
        counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for (team, pool), used in self._by_team.items():
            if used:
                counts[team][pool] = used
        return counts

    def opened(self, attempt: AttemptId, pools: Mapping[str, int], team: str) -> None:
        """Add the use of an attempt. Safe to repeat."""
        if pools:
            self.closed(attempt)
            self._taken[attempt] = team, pools
            self._used.update(pools)
            self._by_team.update({(team, pool): amount for pool, amount in pools.items()})

    def closed(self, attempt: AttemptId) -> Iterable[str]:
        """Remove the use of an attempt. Return its pools."""
        if attempt not in self._taken:
            return ()
        team, pools = self._taken.pop(attempt)
        self._used.subtract(pools)
        self._by_team.subtract({(team, pool): amount for pool, amount in pools.items()})
        return pools


class Silence(NamedTuple):
    """No sign of life of an open attempt."""

    is_claimed: bool
    """False: its worker is silent; True: its runner, or its driver in a cluster."""
    since_s: float
    """When this leader noticed it, in elapsed seconds."""
    worker: WorkerId
    """Which has the order."""


class OpenAttempts:
    """Open attempts of live runs."""

    def __init__(
        self,
        work: WorkQueue,
        live: Mapping[RunId, Run],
        ready: ReadyTasks,
        team_of: Callable[[PipelineName], str],
    ) -> None:
        self._work = work
        self._live = live
        self._ready = ready
        self._team_of = team_of
        self.workers = Workers()
        """Registered workers, with the settings of the cluster applied, and their open attempts."""
        self.pools = PoolUse()
        self.slots: dict[AttemptId, Slots] = {}
        self.silent: dict[AttemptId, Silence] = {}

    def find(self, attempt: AttemptId) -> tuple[Run, Attempt] | None:
        """A run and its open attempt; None if the attempt is not open (any more)."""
        run = self._live.get(attempt.run)
        task = None if run is None else run.tasks.get(attempt.task)
        current = None if task is None else task.open_attempt
        if run is None or current is None or current.number != attempt.number:
            return None
        return run, current

    def put_slots(self, attempt: AttemptId, slots: Slots, now: Instant) -> None:
        """Update the slots of an open attempt."""
        if self.slots.get(attempt, slots) != slots:
            self.slots[attempt] = slots
            self._note_silence(attempt, now)

    def put_workers(self, workers: Iterable[WorkerInfo], now: Instant) -> None:
        """Update the registered workers, with the settings of the cluster applied."""
        changed = self.workers.register(workers)
        for worker in changed:
            for attempt in sorted(self.workers.open_on(worker)):
                self._note_silence(attempt, now)
        there = self.workers.registered
        # Also of attempts that are not read again yet: their worker was missed, and is seen now.
        seen = [name for name, of in self.silent.items() if not of.is_claimed and of.worker in there]
        for attempt in seen:
            del self.silent[attempt]
        if changed:  # the possible reapers of silent attempts have changed
            for attempt in self.silent:
                self._work.add(Key.of_attempt(attempt))
        for drained in (worker for worker in self.workers.registered.values() if worker.evicts):
            for attempt in sorted(self.workers.open_on(drained.id)):
                self._work.add(Key.of_attempt(attempt))
        self._ready.reopen()

    def put(
        self, attempt_id: AttemptId, attempt: Attempt, task: TaskSpec, slots: Slots, now: Instant
    ) -> None:
        """Add an open attempt."""
        self.count(attempt_id, attempt, task)
        self.slots[attempt_id] = slots
        self._note_silence(attempt_id, now)

    def count(self, attempt_id: AttemptId, attempt: Attempt, task: TaskSpec) -> None:
        """Count an open attempt at the worker that has its order now, for its team. Safe to repeat."""
        team = self._team_of(self._live[attempt_id.run].pipeline)
        self.workers.opened(attempt_id, attempt.ordered_to, need_of(task), team)
        self.pools.opened(attempt_id, task.pools, team)

    def move(self, attempt_id: AttemptId, attempt: Attempt, task: TaskSpec) -> None:
        """Count an open attempt at another worker."""
        self.count(attempt_id, attempt, task)
        self._ready.reopen()

    def forget(self, attempt: AttemptId) -> None:
        """Remove an attempt that has ended, or whose run is gone."""
        self.workers.closed(attempt)
        self.slots.pop(attempt, None)
        self.silent.pop(attempt, None)
        self._work.forget(Key.of_attempt(attempt))
        self._ready.reopen()
        self._ready.open(Gate("run", attempt.run))
        for pool in self.pools.closed(attempt):
            self._ready.open(Gate("pool", pool))

    def _note_silence(self, attempt_id: AttemptId, now: Instant) -> None:
        """Start, keep or clear the time of an attempt's silence, and queue the attempt.

        The sign of life is the worker's registration before CLAIM, and the runner's heartbeat afterwards.
        """
        attempt = self.find(attempt_id)
        if attempt is None:
            return
        seen = self.slots[attempt_id]
        held = seen.claim is not None or seen.submitted is not None
        alive = shows_life(attempt[1], seen, self.workers.registered)
        silent = self.silent.get(attempt_id)
        if alive:
            self.silent.pop(attempt_id, None)
        elif silent is None or silent.is_claimed is not held:
            self.silent[attempt_id] = Silence(held, now.elapsed_s, attempt[1].worker)
        self._work.add(Key.of_attempt(attempt_id))

    def note_ends(self, before: Run, run: Run) -> None:
        """Count refusals by workers between two versions of a run."""
        changed = False
        for was, task in run.tasks.changes_since(before.tasks):
            if was is not None and was.open_attempt is not None and task.open_attempt is None:
                changed |= self.workers.note_ended(task)
        if changed:
            self.await_back_offs()

    def await_back_offs(self) -> None:
        """Set timers for the ends of all workers' back-offs."""
        for worker, refusal in self.workers.refusals.items():
            self._work.add_at(Key("worker", worker), refusal.until)

    def keep_open(self) -> None:
        """Drop the silence of attempts that are not open any more."""
        self.silent = {attempt: since for attempt, since in self.silent.items() if attempt in self.slots}
