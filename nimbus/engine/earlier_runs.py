"""Reads ended runs that others reuse, or have started: from ZooKeeper for a while, then from history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from nimbus.domain import child_runs
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, PipelineName, RunId, TaskName
from nimbus.domain.outputs import Results
from nimbus.domain.publications import Read, Version
from nimbus.domain.purge import fate_of
from nimbus.domain.run import Run, RunPart
from nimbus.domain.slots import Slots
from nimbus.ports import History


class EarlierRuns:
    """Reads ZooKeeper first: a run is removed there only after history has it. From any thread."""

    def __init__(
        self,
        read_run: Callable[[RunId], Run | None],
        read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
        history: History,
    ) -> None:
        self._read_run, self._read_slots, self._history = read_run, read_slots, history

    def find(self, run: RunId, pipeline: PipelineName) -> Run:
        """An ended run of a pipeline.

        Raises:
            RefusedError: the run does not exist, has not ended, or is of another pipeline.
            NimbusError: history cannot be read now.
        """
        found = self._read_run(run) or self._history.read(run)
        if found is None:
            raise RefusedError("unknown_run", f"run {run} {fate_of(self._history.purged(run))}.")
        if found.pipeline != pipeline:
            raise RefusedError("other_pipeline", f"run {run} is of pipeline {found.pipeline}.")
        if not found.state.is_final:
            raise RefusedError("run_live", f"run {run} has not ended: its successes can be used later.")
        return found

    def check_none(self, run: RunId) -> None:
        """Check that a run never existed.

        Raises:
            RefusedError: it exists, or did before it was purged.
            NimbusError: history cannot be read now.
        """
        if self._read_run(run) or self._history.read(run) or self._history.purged(run):
            raise RefusedError("run_exists", f"run {run} exists already")

    def check_outputs(self, earlier: Run, run: Run) -> None:
        """Raise RefusedError if a run reuses or reads outputs of earlier runs that are purged.

        Called after the command of the run was read: see `nimbus.scheduler.purge`. A run that is in ZooKeeper
        is not purged, so storage, which may be unavailable, is not read for it.
        """
        reused = (task.reused.attempt for task in run.tasks.in_order() if task.reused is not None)
        if any(attempt is not None and attempt.output is not None for attempt in reused):
            self._check_kept(earlier.id, "they cannot be reused")
        pins = (version for versions in run.pins.values() for version in versions)
        again = "Start a new run" if any(read.new for read in run.reads) else "Run all tasks again"
        for source in sorted({version.source.run for version in pins if version.output is not None}):
            self._check_kept(source, f"run {earlier.id} has read them, and so would this one", again)

    def _check_kept(self, run: RunId, use: str, remedy: str = "Run all tasks again") -> None:
        if self._read_run(run) is not None:
            return
        gone = self._history.purged(run)
        if gone is not None and RunPart.OUTPUTS in gone.parts:
            raise RefusedError(
                "outputs_purged",
                f"outputs of run {run} were {gone.parts[RunPart.OUTPUTS]}: {use}. {remedy}.",
            )

    def parts(self, run: Run, read: Read) -> tuple[Version, ...]:
        """What the child runs of a task have published, see `nimbus.domain.child_runs`.

        Raises:
            ReadError: there is nothing, or too much.
            RefusedError: an earlier run or a child run is deleted.
            NimbusError: history cannot be read now.
        """
        children = child_runs.children_of(run, read, lambda earlier: self.find(earlier, run.pipeline))
        return child_runs.published_by_children(read, (self._child(child) for child in children))

    def _child(self, child: child_runs.Child) -> child_runs.EndedChild:
        run = self.find(child.run, child.pipeline)
        return child_runs.EndedChild(child.item, run, self.results(run))

    def results(self, run: Run) -> Results:
        """Results of a run's tasks, including reused ones. Raises NimbusError, see `find`."""
        found = {
            name: task.reused.result
            for name, task in run.tasks.items()
            if task.reused is not None and task.reused.result is not None
        }
        wanted: defaultdict[RunId, dict[AttemptId, TaskName]] = defaultdict(dict)
        for name, task in run.tasks.items():
            attempt, source = task.committed, run.id if task.reused is None else task.reused.run
            if name not in found and attempt is not None and attempt.has_result:
                wanted[source][AttemptId(source, name, attempt.number)] = name
        for source, attempts in wanted.items():
            found |= self._given(source, attempts)
        return found

    def _given(self, run: RunId, attempts: Mapping[AttemptId, TaskName]) -> Results:
        seen = self._read_slots(attempts)
        found = {
            attempts[attempt]: slots.end.result
            for attempt, slots in seen.items()
            if slots.end is not None and slots.end.result is not None
        }
        return found if len(found) == len(attempts) else {**self._history.results(run), **found}
