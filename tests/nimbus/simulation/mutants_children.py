"""Bugs of child runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.domain import writes as w
from nimbus.domain.runs import child_runs, lifecycle
from nimbus.domain.runs.children import ItemState
from nimbus.domain.runs.task_run import TaskState
from nimbus.engine.decision import Decision
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.state.runs import Runs
from nimbus.engine.work_queue import Key
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.mutants_leaders import in_two


@mutant
def child_run_is_created_before_its_parent_says_so() -> Iterator[None]:
    """AF 10790: after a kill in between, the parent does not know the existing child and cannot create it."""
    original = LeaderTerm._do
    apart = in_two(lambda write: isinstance(write, w.CreateRun) and write.run.parent is not None)

    def do(self: Any, key: Any, decision: Decision, now: Any) -> None:
        (apart if key.kind == "children" else original)(self, key, decision, now)

    with replaced(LeaderTerm, _do=do):
        yield


@mutant
def ends_of_child_runs_are_told_once() -> Iterator[None]:
    """DS 17350: after a failover, the parent is not notified of a child that has ended in the meantime."""

    def put_children(self: Any, run: Any, _was: Any, task: Any) -> None:
        self._work.add(Key("children", run.id, task.spec.name))

    original = Runs._put_finished

    def put_finished(self: Any, run: Any) -> None:
        original(self, run if self.read is None else replace(run, parent=None))

    with replaced(Runs, _put_children=put_children, _put_finished=put_finished):
        yield


@mutant
def retry_repeats_all_child_runs() -> Iterator[None]:
    """DS 15583: a retried task starts succeeded child runs again."""
    original = child_runs.begun

    def begun(_before: Any, *args: Any, **more: Any) -> Any:
        return original(None, *args, **more)

    with replaced(child_runs, begun=begun):
        yield


@mutant
def max_parallel_is_overlooked() -> Iterator[None]:
    """AF 29474: all items start at once."""
    original = child_runs.parts

    def parts(*args: Any) -> Any:
        spec, found = original(*args)
        return replace(spec, max_parallel=None), found

    with replaced(child_runs, parts=parts):
        yield


@mutant
def stopped_parent_does_not_wait_for_its_child_runs() -> Iterator[None]:
    """DS 14303: a run counts as stopped while its sub-workflows continue."""
    original = lifecycle._stopping

    def stopping(*args: Any, **more: Any) -> Any:
        run = original(*args, **more)
        tasks = (task for task in run.tasks.values() if child_runs.is_under_way(task))
        ended = [replace(task, state=TaskState.NOT_RUN) for task in tasks]
        return replace(run, tasks=run.tasks.replaced(ended))

    with replaced(lifecycle, _stopping=stopping):
        yield


@mutant
def rerun_takes_over_items_that_did_not_succeed() -> Iterator[None]:
    """Items that failed or never ran count as done when the run is repeated."""
    original = child_runs.succeeded_alone

    def succeeded_alone(before: Any) -> Any:
        return original(replace(before, states=ItemState.SUCCEEDED * len(before.states)))

    with replaced(child_runs, succeeded_alone=succeeded_alone):
        yield
