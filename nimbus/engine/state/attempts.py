"""Updates open attempts, and registered workers and schedulers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nimbus.domain.admission import Gate, need_of
from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.run import Run
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.schema import older_than
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Slots
from nimbus.domain.supervision import shows_life
from nimbus.domain.task_run import Attempt
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.agenda import ABOUT_SCHEMA, Instant, about_attempt, about_worker
from nimbus.engine.state.facts import Facts, Silence


class OpenAttempts(Facts):
    """Open attempts, their slots and workers."""

    def put_slots(self, attempt: AttemptId, slots: Slots, now: Instant) -> None:
        """Update the slots of an open attempt."""
        if self.slots.get(attempt, slots) != slots:
            self.slots[attempt] = slots
            self._note_silence(attempt, now)

    def put_schedulers(self, schedulers: Collection[SchedulerInfo], now: Instant) -> None:
        """Update schedulers, after the workers, and note since when all of them know a newer schema."""
        self.schedulers = tuple(schedulers)
        newest = self.policy.newest_schema
        upgraded = schedulers and not older_than(newest, schedulers, self.workers.registered.values())
        if self.schema >= newest or not upgraded:
            self.none_older_since = None
            return
        if self.none_older_since is None:
            self.none_older_since = now.elapsed_s
        self.agenda.add(ABOUT_SCHEMA)

    def put_workers(self, workers: Iterable[WorkerInfo], now: Instant) -> None:
        """Update the registered workers."""
        self._registered = tuple(workers)
        changed = self.workers.register(self.settings.applied_to(self._registered))
        for worker in changed:
            for attempt in sorted(self.workers.open_on(worker)):
                self._note_silence(attempt, now)
        if changed:  # the possible reapers of silent attempts have changed
            for attempt in self.silent:
                self.agenda.add(about_attempt(attempt))
        self.ready.reopen()

    def put_settings(self, settings: ClusterSettings, now: Instant) -> None:
        """Update the cluster settings."""
        for pool in self.settings.pools.keys() | settings.pools.keys():
            self.ready.open(Gate("pool", pool))
        self.settings = settings
        self.put_workers(self._registered, now)

    def _put_attempt(
        self, attempt_id: AttemptId, attempt: Attempt, task: TaskSpec, slots: Slots, now: Instant
    ) -> None:
        self.workers.opened(attempt_id, attempt.worker, need_of(task))
        self.pools.opened(attempt_id, task.pools)
        self.slots[attempt_id] = slots
        self._note_silence(attempt_id, now)

    def _forget_attempt(self, attempt: AttemptId, worker: WorkerId) -> None:
        self.workers.closed(attempt, worker)
        self.slots.pop(attempt, None)
        self.silent.pop(attempt, None)
        self.agenda.forget(about_attempt(attempt))
        self.ready.reopen()
        self.ready.open(Gate("run", attempt.run))
        for pool in self.pools.closed(attempt):
            self.ready.open(Gate("pool", pool))

    def _note_silence(self, attempt_id: AttemptId, now: Instant) -> None:
        """Start, keep or clear the time of an attempt's silence, and put the attempt on the agenda.

        The sign of life is the worker's registration before CLAIM, and the runner's beat afterwards.
        """
        found = self.open_attempt(attempt_id)
        if found is None:
            return
        seen = self.slots[attempt_id]
        held = seen.claim is not None or seen.submitted is not None
        alive = shows_life(found[1], seen, self.workers.registered)
        silent = self.silent.get(attempt_id)
        if alive:
            self.silent.pop(attempt_id, None)
        elif silent is None or silent.is_claimed is not held:
            self.silent[attempt_id] = Silence(held, now.elapsed_s)
        self.agenda.add(about_attempt(attempt_id))

    def _note_refusals(self, before: Run, run: Run) -> None:
        changed = False
        for was, task in run.tasks.changes_since(before.tasks):
            if was is not None and was.open_attempt is not None and task.open_attempt is None:
                changed |= self.workers.note_ended(task)
        if changed:
            self._await_back_offs()

    def _await_back_offs(self) -> None:
        for worker, found in self.workers.refusals.items():
            self.agenda.look_at(about_worker(worker), found.until)
