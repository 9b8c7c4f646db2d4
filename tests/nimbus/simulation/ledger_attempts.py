"""The laws of attempts, slots and orders."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import AttemptId, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, TriggerRule
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, TaskState
from tests.nimbus.simulation.catalog import TARGET_SLOTS
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.ledger_runs import RunLaws
    from tests.nimbus.simulation.store import FaultyStore
    from tests.nimbus.simulation.world import World

_ROUNDING_S = 1e-3

_MAY_FOLLOW = {
    TriggerRule.SUCCEEDED: {TaskState.SUCCEEDED},
    TriggerRule.NOT_FAILED: {TaskState.SUCCEEDED, TaskState.SKIPPED},
    TriggerRule.FAILED: {TaskState.FAILED, TaskState.NOT_RUN},
    TriggerRule.DONE: {TaskState.SUCCEEDED, TaskState.SKIPPED, TaskState.FAILED, TaskState.NOT_RUN},
    TriggerRule.ONE_FAILED: {TaskState.SUCCEEDED, TaskState.SKIPPED, TaskState.FAILED, TaskState.NOT_RUN},
    TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS: {TaskState.SUCCEEDED, TaskState.SKIPPED},
}
_ONE_OF = {
    TriggerRule.ONE_FAILED: {TaskState.FAILED, TaskState.NOT_RUN},
    TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS: {TaskState.SUCCEEDED},
}
"""How one of the needs with a word must have ended."""


class AttemptLaws:
    """See the module."""

    def __init__(self, world: World, runs: RunLaws) -> None:
        self._world, self._runs = world, runs
        self.ends: dict[AttemptId, End] = {}
        self.ended_s: dict[AttemptId, float] = {}
        """When each was written."""
        self._claims: dict[AttemptId, Claim] = {}
        self.open: dict[AttemptId, WorkerId] = {}
        """By the runs' records."""
        self._at_target: set[AttemptId] = set()
        self._in_cluster: set[AttemptId] = set()
        self._successes: set[tuple[RunId, TaskName]] = set()

    # -- slots

    def slots_changed(self, attempt: AttemptId, before: Slots, after: Slots) -> None:
        """A process other than the leader has filled a slot, or started or stopped to beat."""
        if before.claim != after.claim and after.claim is not None:
            self._claimed(attempt, after.claim)
        hold(Law.SLOT_STANDS, before.end in (None, after.end), attempt, "had an END before")
        if before.end is None and after.end is not None:
            self._reported(attempt, after.end)
            self._ended(attempt, after.end)

    def _claimed(self, attempt: AttemptId, claim: Claim) -> None:
        standing = self._claims.get(attempt)
        hold(Law.SLOT_STANDS, standing is None, attempt, "was claimed before:", standing, claim)
        self._claims[attempt] = claim

    def _ended(self, attempt: AttemptId, end: End) -> None:
        hold(Law.SLOT_STANDS, attempt not in self.ends, attempt, "ended twice:", self.ends.get(attempt), end)
        self.ends[attempt] = end
        self.ended_s[attempt] = self._world.time.s
        if end.outcome is Outcome.SUCCEEDED:
            driver = self._world.drivers[str(end.nonce)]
            hold(Law.DRIVER, driver.success and driver.kept, attempt, "is no success:", end)
            task = attempt.run, attempt.task
            is_kept = self._runs.all[attempt.run].tasks[attempt.task].spec.keeps_running
            is_second = task in self._successes and not is_kept
            hold(Law.ONE_SUCCESS, not is_second, attempt, "is a second success")
            self._successes.add(task)

    def _reported(self, attempt: AttemptId, end: End) -> None:
        """A runner, executor or worker has written an END, so it knows what has become of the driver."""
        never_began = attempt not in self._world.ledger.executions
        hold(Law.DRIVER, end.outcome is not Outcome.REFUSED or never_began, attempt, "ran, and is refused")
        was_claimed = attempt in self._claims
        hold(Law.DRIVER, end.outcome is not Outcome.LOST or was_claimed, attempt, "is lost, and unclaimed")
        driver = self._world.drivers.get(str(end.nonce))
        if driver is None or "is not heard and may live" in end.reason:
            return
        hold(Law.DRIVER, not (driver.runs or driver.remains), attempt, "has an END, and its processes live")
        passed_over = driver.is_recorded and end.written_by == "worker"
        hold(Law.DRIVER, not passed_over, attempt, "has a record on the disk, and another END:", end)

    # -- the leader's writes

    def written(self, write: w.Write, store: FaultyStore) -> None:
        """Record one write about an attempt."""
        match write:
            case w.CreateAttempt(attempt):
                self._opened(attempt)
            case w.Assign(_, order) if order.kind is AssignmentKind.RUN:
                self._ordered(order)
            case w.WriteClaim(attempt, claim):
                self._claimed(attempt, claim)
            case w.WriteEnd(attempt, end):
                self._fenced(attempt, end, store)
                self._ended(attempt, end)
            case _:
                pass  # orders are checked as a whole

    def _opened(self, attempt: AttemptId) -> None:
        run = self._runs.all[attempt.run]
        task = run.tasks[attempt.task]
        for number in range(1, attempt.number):
            before = AttemptId(attempt.run, attempt.task, number)
            hold(Law.ONE_AT_A_TIME, before in self.ends, attempt, "opens before the END of", before)
        hold(Law.RETRIES_COUNT, self._runs.may_try(task), attempt, "is one too many")
        asked = task.spec.requirements
        unmet = [
            need
            for need in task.spec.needs
            if not run.tasks[need].left_out
            and run.tasks[need].state not in _MAY_FOLLOW[asked.get(need, TriggerRule.SUCCEEDED)]
        ]
        hold(Law.NEEDS_FIRST, not unmet, attempt, "opens before", unmet)
        for word, wanted in _ONE_OF.items():
            ends = {
                run.tasks[need].state
                for need in task.spec.needs
                if asked.get(need) is word and not run.tasks[need].left_out
            }
            hold(Law.NEEDS_FIRST, not ends or ends & wanted, attempt, word, "is not met by", ends)
        failed = run.tasks.count(TaskState.FAILED) and run.failure_strategy is FailureStrategy.END
        is_clean_up = {TriggerRule.FAILED, TriggerRule.DONE, TriggerRule.ONE_FAILED} & set(asked.values())
        hold(Law.CLEAN_UP, not failed or is_clean_up, attempt, "opens in a run that has failed")
        hold(Law.FINAL_IS_FINAL, run.state is RunState.RUNNING, attempt, "opens in a run that is", run.state)

    def _ordered(self, order: Assignment) -> None:
        """Check an order: templates of the simulated tasks contain the whole result of one other task."""
        spec = self._runs.all[order.run].tasks[order.task.name].spec
        given = tuple(self.given(order.run, read) for read in spec.reads if spec.args)
        hold(Law.RESULTS, not spec.reads or order.task.args == given, order.attempt, order.task.args, given)
        hold(Law.RESULTS, order.task.when in ("", "true"), order.attempt, order.task.when)

    def given(self, run: RunId, task: TaskName) -> str | None:
        """The committed result of a task, in its run or in the run from which it is reused."""
        reused = self._runs.all[run].tasks[task].reused
        run = run if reused is None else reused.run
        ends = (end for key, end in self.ends.items() if (key.run, key.task) == (run, task))
        return next((end.result["given"] for end in ends if end.result is not None), None)

    def _fenced(self, attempt: AttemptId, end: End, store: FaultyStore) -> None:
        """A leader ends an attempt only after its grace has passed since this leader first missed it."""
        timings = self._world.policy.timings
        if end.outcome is Outcome.LOST:
            whom: AttemptId | WorkerId = attempt
            grace_s = timings.host_lost_after.total_seconds()
            claim = self._world.zookeeper.world.slots[attempt].claim
            hold(Law.NO_HASTE, claim is not None, attempt, "is lost, and never was claimed")
        elif "is gone and had not started it" in end.reason:
            whom, grace_s = self.open[attempt], timings.beat_grace.total_seconds()
        else:
            return
        silent_s = self._world.time.s - store.missed_s.get(whom, self._world.time.s)
        hold(Law.NO_HASTE, silent_s >= grace_s - _ROUNDING_S, attempt, "after", silent_s, "s of", grace_s)

    # -- what follows from a run's record

    def run_written(self, run: Run) -> None:
        """Record a run's open attempts, and the outcomes of its closed ones."""
        for name, task in run.tasks.items():
            if not task.attempts or task.spec.children is not None:
                continue
            last = task.attempts[-1]
            attempt = AttemptId(run.id, name, last.number)
            if last.outcome is None:
                self.open[attempt] = last.worker
                if task.spec.spark_place is not None:
                    self._at_target.add(attempt)
                if task.spec.runs_in_cluster:
                    self._in_cluster.add(attempt)
            else:
                self.open.pop(attempt, None)
                end = self.ends.get(attempt)
                same = end is not None and end.outcome is last.outcome
                hold(Law.END_IS_THE_OUTCOME, same, attempt, last.outcome, "and END:", end)

    def check_orders(self) -> None:
        """After each commit: one order for each open attempt; no worker or target exceeds its slots.

        An attempt that another worker reaps takes a slot there, on the same host.
        """
        orders = self._world.zookeeper.world.orders
        ordered = Counter(attempt for _, attempt in orders)
        once = ordered == Counter(self.open.keys())
        hold(Law.ONE_ORDER, once, "open:", sorted(map(str, self.open)), "ordered:", sorted(map(str, ordered)))
        own = ((worker, attempt) for worker, attempt in orders if self.open[attempt] == worker)
        here = (worker for worker, attempt in own if attempt not in self._in_cluster)
        for worker, busy in Counter(here).items():
            slots = self._world.slots_of(worker)
            hold(Law.SLOTS, busy <= slots, worker, "has", busy, "open attempts and", slots, "slots")
        self._at_target &= self.open.keys()
        hold(Law.TARGET_SLOTS, len(self._at_target) <= TARGET_SLOTS, sorted(map(str, self._at_target)))
