"""The laws of child runs: each is created once, its end is recorded correctly, its parent ends after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nimbus.domain import writes as w
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.runs.child_runs import child_of, spec_of
from nimbus.domain.runs.children import ItemState, Parent
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.ledger_runs import RunLaws

_ENDS = {
    ItemState.SUCCEEDED.value: RunState.SUCCEEDED,
    ItemState.FAILED.value: RunState.FAILED,
    ItemState.STOPPED.value: RunState.STOPPED,
}


class ChildLaws:
    """See the module. It sees each write after `RunLaws` has."""

    def __init__(self, runs: RunLaws) -> None:
        self._runs = runs
        self.created: set[tuple[RunId, TaskName, int, int]] = set()
        """By run, task, attempt and item."""
        self._promised: set[RunId] = set()
        """Child runs in a parent's record, in the current transaction."""

    def written(self, write: w.Write) -> None:
        """Record one write."""
        match write:
            case w.CreateRun(run):
                self._reuses_items(run)
                if run.parent is not None:
                    self._created(run, run.parent)
            case w.PutRun(run, before):
                for was, task in run.tasks.changes_since(before.tasks):
                    if task.children is not None:
                        self._moved(run, was, task)
            case _:
                pass
        if isinstance(write, w.CreateRun | w.PutRun) and write.run.state.is_final:
            left = [other.id for other in self._live() if other.parent and other.parent.run == write.run.id]
            hold(Law.PARENT_LAST, not left, write.run.id, "ends before", left)

    def committed(self) -> None:
        """After a transaction: the parents' records of their child runs are true."""
        missing = self._promised - self._runs.all.keys()
        hold(Law.CHILD_ONCE, not missing, "never created:", missing)
        self._promised.clear()

    def _live(self) -> list[Run]:
        return [run for run in self._runs.live.values() if not run.state.is_final]

    def _reuses_items(self, run: Run) -> None:
        """A rerun reuses exactly the items whose child runs have succeeded for the same item."""
        for name, task in run.tasks.items():
            spec, children = spec_of(task), task.children
            if spec is None or children is None:
                continue
            was = None if run.rerun_of is None else self._runs.all[run.rerun_of].tasks[name]
            before = None if was is None else spec_of(was)
            states = "" if was is None or was.children is None else was.children.states
            for index, state in enumerate(children.states):
                good = states[index : index + 1] == ItemState.SUCCEEDED.value
                same = (
                    before is not None
                    and before.pipeline == spec.pipeline
                    and index < before.count
                    and before.item(index) == spec.item(index)
                )
                taken = state == ItemState.SUCCEEDED.value
                hold(Law.RERUN, taken == (good and same), run.id, name, "item", index, state, "was", states)

    def _created(self, run: Run, link: Parent) -> None:
        key = link.run, link.task, link.attempt, link.index
        hold(Law.CHILD_ONCE, key not in self.created, run.id, "is created again")
        self.created.add(key)
        parent = self._runs.all[link.run]
        task = parent.tasks[link.task]
        spec, children = task.spec.children, task.children
        assert spec is not None
        assert children is not None
        said = ItemState(children.states[link.index]), child_of(parent, link.task, link.index)
        hold(Law.CHILD_ONCE, said == (ItemState.OPEN, run.id), run.id, "is not what its parent says:", said)
        hold(Law.PARENT_LAST, parent.opens_tasks, run.id, "is created by a run that is", parent.state)
        hold(Law.CHILD_ONCE, run.release == spec.release, run.id, "is of another release")
        open_now = [
            other.id
            for other in self._live()
            if other.parent is not None and (other.parent.run, other.parent.task) == (link.run, link.task)
        ]
        most = spec.max_parallel or spec.count
        hold(Law.CHILD_PARALLEL, len(open_now) <= most, open_now, "of", most)

    def _moved(self, run: Run, was: TaskRun | None, task: TaskRun) -> None:
        assert task.children is not None
        earlier = "" if was is None or was.children is None else was.children.states
        for index, state in enumerate(task.children.states):
            before = earlier[index] if earlier else ItemState.WAITING.value
            child = child_of(run, task.spec.name, index)
            if before == ItemState.SUCCEEDED.value:
                hold(Law.CHILD_ONCE, state == before, run.id, task.spec.name, index, "is repeated")
            if state == before:
                continue
            if state == ItemState.OPEN.value and child is not None:
                self._promised.add(child)
            if before == ItemState.OPEN.value:
                found = None if child is None else self._runs.all.get(child)
                ended = found is not None and found.state is _ENDS.get(state)
                hold(Law.CHILD_END, ended, child, "is", found and found.state, "and its parent says", state)
