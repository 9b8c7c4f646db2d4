"""The law of the index of intervals: it says how the last run of each interval ended, at every moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nimbus.domain import writes as w
from nimbus.domain.ids import PipelineName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.run import Run
from tests.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.simulation.world import World


class IntervalLaws:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[tuple[PipelineName, DataInterval], Run] = {}

    def written(self, write: w.Write) -> None:
        """Take in one write."""
        match write:
            case w.CreateRun(run) | w.PutRun(run, _) if run.state.is_final and run.data_interval is not None:
                key = run.pipeline, run.data_interval
                if run.started_at is not None or key not in self._last:
                    self._last[key] = run
            case w.RemovePipelineRecord(record):
                self._last = {key: run for key, run in self._last.items() if key[0] != record.name}

    def check(self) -> None:
        """Compare with what ZooKeeper holds after a commit."""
        indexes = self._world.zookeeper.world.intervals
        for (pipeline, interval), run in self._last.items():
            found = indexes[pipeline].last(interval) if pipeline in indexes else None
            said: tuple[object, ...] = () if found is None else (found.run, found.outcome)
            hold(Law.INTERVALS, said == (run.id, run.state), interval, "of", run.id, run.state, "is", said)
