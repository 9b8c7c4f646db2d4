"""Bugs of runs, tasks, attempts and slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.domain import writes as w
from nimbus.domain.attempts import supervision
from nimbus.domain.attempts.supervision import Idle
from nimbus.domain.pipelines.pipeline import TriggerRule
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.starts import admission, needs
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.ready import Needs
from nimbus.engine.rules import assign, attempts
from nimbus.engine.state.runs import Runs
from nimbus.engine.state.tasks import WaitingTasks
from nimbus.engine.workers import Workers
from tests.nimbus.dict_store import DictTree
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.zookeeper import Ensemble


@mutant
def retry_opened_before_end() -> Iterator[None]:
    """AF 13808, DS 8110: an attempt that seems dead is retried, but not prevented from finishing."""
    original = attempts._decision

    def decide(*args: Any) -> Any:
        decision = original(*args)
        writes = tuple(x for x in decision.writes if not isinstance(x, w.WriteEnd | w.WriteClaim))
        return replace(decision, writes=writes)

    with replaced(attempts, _decision=decide):
        yield


@mutant
def fence_without_looking_who_won() -> Iterator[None]:
    """AF 66713: a task is considered lost while it reports its end, and the report is ignored."""
    original = LeaderTerm._overtaken

    def overtaken(self: Any, key: Any, decision: Any, exc: Any) -> None:
        slots = w.WriteClaim | w.WriteEnd
        if not any(isinstance(write, slots) for write in decision.writes):
            original(self, key, decision, exc)
            return
        rest = tuple(write for write in decision.writes if not isinstance(write, slots))
        self._write(replace(decision, writes=rest))
        self._accept(key, replace(decision, writes=rest), self._now())

    with replaced(LeaderTerm, _overtaken=overtaken):
        yield


@mutant
def slots_can_be_overwritten() -> Iterator[None]:
    """DS 8110: of two reports of one task, the later one counts."""
    original = DictTree.create

    def create(self: Any, path: str, data: bytes = b"", **how: Any) -> str:
        if self.get(path) is None or not path.endswith(("/claim", "/end")):
            return original(self, path, data, **how)
        self.set_data(path, data)
        return path

    with replaced(DictTree, create=create):
        yield


@mutant
def claim_can_be_overwritten() -> Iterator[None]:
    """AF 23520, Dagster 33962: two processes execute one run."""

    def claim(self: Any, attempt: Any, ours: Any) -> Any:
        slots = self.world.slots.get(attempt)
        if slots is None:
            return None
        self.cluster.set_slots(attempt, replace(slots, claim=ours))
        return ours

    with replaced(Ensemble, claim=claim):
        yield


@mutant
def failover_reruns_finished_tasks() -> Iterator[None]:
    """DS 13283: after a failover, a workflow starts from the beginning."""
    original = Runs.put

    def put(self: Any, run: Any, now: Any, *slots: Any) -> None:
        if run.id not in self.live and not run.state.is_final:
            done = (task for task in run.tasks.values() if task.state is TaskState.SUCCEEDED)
            run = replace(run, tasks=run.tasks.replaced(replace(t, state=TaskState.WAITING) for t in done))
        original(self, run, now, *slots)

    with replaced(Runs, put=put):
        yield


@mutant
def failover_resets_running_tasks() -> Iterator[None]:
    """AF 16023, 25021: the next scheduler treats running tasks as orphans, and starts them again."""
    original = Runs.put

    def put(self: Any, run: Any, now: Any, *slots: Any) -> None:
        for attempt in () if run.id in self.live else run.open_attempts():
            task = run.tasks[attempt.task]
            lost = replace(task.attempts[-1], outcome=Outcome.LOST)
            fresh = replace(task, state=TaskState.WAITING, attempts=(*task.attempts[:-1], lost))
            run = replace(run, tasks=run.tasks.replaced((fresh,)))
        original(self, run, now, *slots)

    with replaced(Runs, put=put):
        yield


@mutant
def retries_counted_by_each_leader() -> Iterator[None]:
    """AF 15588, "attempt 2 of 1": the count of retries is lost when a scheduler restarts."""

    def failures(self: TaskRun) -> int:
        epoch = self.attempts[-1].opened_by_epoch if self.attempts else 0
        bad = (Outcome.FAILED, Outcome.TIMED_OUT)
        return sum(a.outcome in bad and a.opened_by_epoch == epoch for a in self.attempts)

    with replaced(TaskRun, failures=property(failures)):
        yield


@mutant
def infrastructure_failures_never_end() -> Iterator[None]:
    """DS 17795: a task that cannot be started is retried without end."""
    original = lifecycle.close_attempt

    def close(*args: Any, max_infrastructure_failures: int, **others: Any) -> Any:
        return original(*args, max_infrastructure_failures=1000, **others)

    with replaced(lifecycle, close_attempt=close):
        yield


@mutant
def end_counted_twice() -> Iterator[None]:
    """AF 7885, 19222: a task runs before all its needs are met."""

    def ended(self: Any, task: Any) -> Iterator[Any]:
        for dependent in self._dependents(task):
            self._unmet[dependent] = max(0, self._unmet.get(dependent, 0) - 2)
            if not self._unmet[dependent]:
                del self._unmet[dependent]
                yield dependent

    with replaced(Needs, ended=ended):
        yield


@mutant
def one_failed_is_met_by_any_end() -> Iterator[None]:
    """AF 7885, 19222: a task with a trigger rule starts too early, although nothing has met the rule."""
    original = needs.verdict

    def any_end(spec: Any, need: Any) -> Any:
        asked = spec.trigger_rule(need.spec.name)
        return needs.NeedEffect.GO if asked is TriggerRule.ONE_FAILED else original(spec, need)

    with replaced(needs, verdict=any_end):
        yield


@mutant
def skipped_branch_skips_the_join() -> Iterator[None]:
    """AF, its default rule: a branch that was not taken skips what comes after all branches."""

    def skipping(spec: Any, found: Any) -> Any:
        return [need for need in found if needs.verdict(spec, need) is needs.NeedEffect.SKIP]

    with replaced(needs, skipping=skipping):
        yield


@mutant
def clean_up_is_stopped_with_the_rest() -> Iterator[None]:
    """DS 11781, 13410: after a failed task nothing starts, not even the clean-up."""
    with replaced(lifecycle, clean_up=lambda _: frozenset()):
        yield


@mutant
def all_goes_on_beside_the_clean_up() -> Iterator[None]:
    """DS 3642, 5131: tasks that do not depend on the failed task start, although the run must end."""
    original = lifecycle.clean_up

    def keep(tasks: Any) -> Any:
        return original(tasks) and frozenset(tasks)

    with replaced(lifecycle, clean_up=keep):
        yield


@mutant
def busy_counter_leaks() -> Iterator[None]:
    """DS 9910, 13726, 17192: a stored count of used slots is not reduced when a task is retried."""
    original = Workers.closed

    def closed(self: Any, attempt: Any) -> None:
        if attempt.number == 1:
            original(self, attempt)

    with replaced(Workers, closed=closed):
        yield


@mutant
def slots_of_targets_are_not_counted() -> Iterator[None]:
    """A target has more open attempts than slots."""
    with replaced(admission, _is_full=lambda *_args: False):
        yield


@mutant
def adopted_attempts_use_no_slot() -> Iterator[None]:
    """AF 58752: after a takeover the count starts again, and the limit is exceeded."""
    original = Runs.put

    def put(self: Any, run: Any, now: Any, *slots: Any) -> None:
        original(self, run, now, *slots)
        for attempt in () if self.read is None else run.open_attempts():
            self._attempts.workers.closed(attempt)

    with replaced(Runs, put=put):
        yield


@mutant
def silent_attempts_are_never_reaped() -> Iterator[None]:
    """Prefect 10141, Dagster 4319: a run whose process disappeared stays "running"."""
    original = supervision._silent

    def silent(*args: Any) -> Any:
        action = original(*args)
        return Idle("its runner may come back") if isinstance(action, supervision.Reap) else action

    with replaced(supervision, _silent=silent):
        yield


@mutant
def orders_are_not_taken_back() -> Iterator[None]:
    """DS 4236: the order to a worker remains after another worker has the task."""
    with replaced(attempts, _withdraw=lambda *_args: ()):
        yield


@mutant
def order_has_templates_instead_of_texts() -> Iterator[None]:
    """DS 18040, 15280: a task gets unrendered parameters."""
    original = assign.order_for

    def order_for(*args: Any, rendered: Any = None, **more: Any) -> Any:
        return original(*args, **more)

    with replaced(assign, order_for=order_for):
        yield


@mutant
def condition_about_a_result_is_taken_for_false() -> Iterator[None]:
    """DS 14537, 15756: a switch takes the wrong branch."""
    original = WaitingTasks.task_rendered

    def task_rendered(self: Any, run: Any, task: Any, result: Any) -> None:
        spec = getattr(result, "when", "") and replace(result, when="false")
        original(self, run, task, spec or result)

    with replaced(WaitingTasks, task_rendered=task_rendered):
        yield


@mutant
def answer_about_texts_is_forgotten() -> Iterator[None]:
    """DS 14130: a task that waits for a condition waits without end."""
    with replaced(WaitingTasks, task_rendered=lambda *_args: None):
        yield
