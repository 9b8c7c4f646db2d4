"""The law of the index of intervals: it always shows how the last run of each interval ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nimbus.domain import writes as w
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.starts.waits import PipelineWait
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


class IntervalLaws:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[tuple[PipelineName, DataInterval], Run] = {}

    def written(self, write: w.Write) -> None:
        """Record one write."""
        match write:
            case w.CreateRun(run) | w.PutRun(run, _) if run.state.is_final and _stands_for_its_interval(run):
                assert run.data_interval is not None
                key = run.pipeline, run.data_interval
                if run.started_at is not None or key not in self._last:
                    self._last[key] = run
            case w.RemovePipelineRecord(record):
                self._last = {key: run for key, run in self._last.items() if key[0] != record.name}
            case _:
                pass  # it ends no run

    def check_wait(self, run: Run, task: TaskRun) -> None:
        """A wait for runs ends only if each required moment has a success, or a failure."""
        (wait,) = task.spec.waits_for
        if not isinstance(wait, PipelineWait) or wait.is_self or run.data_interval is None:
            return
        start, end = run.data_interval.start, run.data_interval.end
        start = start if wait.last is None else end - wait.last
        ended = [one for (name, _), one in self._last.items() if name == wait.pipeline]
        seconds = range(int((end - start).total_seconds()))
        bare = [
            moment
            for moment in (start + timedelta(seconds=second) for second in seconds[::30])
            if not any(one.state is RunState.SUCCEEDED and _covers(one, moment) for one in ended)
        ]
        name = f"{run.id}.{task.spec.name}"
        if task.state is TaskState.SUCCEEDED:
            hold(Law.WAITS, not bare, name, "succeeded, and nothing covers", bare)
        elif task.settled is not None and "was not there" not in task.settled.reason:
            failed = any(_covers(one, moment) for one in ended for moment in bare)
            hold(Law.WAITS, failed, name, "failed, and nothing did for", bare)
        else:
            hold(Law.WAITS, bare, name, "was not ended by what it waits for")

    def check(self) -> None:
        """Compare with ZooKeeper's content after a commit."""
        indexes = self._world.zookeeper.world.intervals
        for pipeline, interval in self._last:
            covering = list(self._covering(pipeline, interval))
            latest = max(map(_ended, covering))
            # Several runs may end in the same moment: each of them is the last one.
            last = [(run.id, run.state) for run in covering if _ended(run) == latest]
            ended = indexes[pipeline].last(interval) if pipeline in indexes else None
            said: tuple[object, ...] = () if ended is None else (ended.run, ended.outcome)
            hold(Law.INTERVALS, said in last, interval, "of", last, "is", said)

    def _covering(self, pipeline: PipelineName, interval: DataInterval) -> Iterator[Run]:
        """The last runs of an interval, and of longer ones that cover it."""
        for (name, other), run in self._last.items():
            if name == pipeline and other.start <= interval.start and interval.end <= other.end:
                yield run


def _ended(run: Run) -> tuple[bool, datetime]:
    """The order of ends: a run that never started is behind all others."""
    assert run.finished_at is not None
    return run.started_at is not None, run.finished_at


def _stands_for_its_interval(run: Run) -> bool:
    left_out = any(task.left_out for task in run.tasks.values())
    return run.data_interval is not None and run.parent is None and not left_out


def _covers(run: Run, moment: datetime) -> bool:
    interval = run.data_interval
    return interval is not None and interval.start <= moment < interval.end
