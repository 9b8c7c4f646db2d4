"""The laws of starts by data: what is due is what changed, and a run starts once for it, when complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nimbus.definition.cron import fires_after, next_fire
from nimbus.definition.intervals import interval_of
from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.data.publications import interval_in, interval_text
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.intervals import gaps
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.starts.due import Due
from tests.nimbus.simulation.catalog import CONSUMERS, FOLLOWING, WINDOWED
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World

STARTING = {FOLLOWING.name: FOLLOWING.reads[0].dataset, WINDOWED.name: WINDOWED.reads[0].dataset}
Target = str
"""The partition of a window, or the name of a dataset."""


class DueLaws:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.due: defaultdict[PipelineName, set[Target]] = defaultdict(set)
        self.starts = 0
        self._consumers = {spec.name for spec in CONSUMERS}
        """Those with an active release, or paused."""
        self._last: dict[tuple[PipelineName, Target], Run] = {}

    def committed(self, writes: Sequence[w.Write], moved: Iterable[tuple[DatasetName, str]]) -> None:
        """Record a commit. `moved`: the partitions whose newest version it changes."""
        for dataset, partition in moved:
            for name in self._consumers:
                if STARTING[name] == dataset:
                    self.due[name] |= _windows(partition) if name == WINDOWED.name else {dataset}
        for write in writes:
            self._written(write)
        stored = self._world.zookeeper.world.due
        hold(Law.DUE, stored.keys() == self._consumers, stored.keys(), "are not", self._consumers)
        for name, found in stored.items():
            hold(Law.DUE, _targets(found) == self.due[name], name, "is due", found, "not", self.due[name])

    def _written(self, write: w.Write) -> None:
        match write:
            case w.CreateRun(run) if run.cause is RunCause.DATA:
                self._started(run)
            case w.CreatePipeline(record) | w.PutPipeline(record, _) if record.name in STARTING:
                if record.state is PipelineState.ACTIVE:
                    self._consumers.add(record.name)
            case w.RemovePipelineRecord(record) if record.name in STARTING:
                self._consumers.discard(record.name)
                self.due[record.name].clear()
            case w.ConsumeCommand(outcome) if outcome.accepted:
                command = self._world.ledger.submitted.get(outcome.command)
                if isinstance(command, c.ActivatePipeline) and command.drop_due:
                    self.due[command.pipeline].clear()
            case _:
                pass

    def _started(self, run: Run) -> None:
        self.starts += 1
        name = run.pipeline
        record = self._world.ledger.schedules.pipelines[name]
        hold(Law.DUE_START, record.state is PipelineState.ACTIVE, run.id, "starts while", record.state)
        live = [one for one in self._world.ledger.runs.live.values() if not one.state.is_final]
        others = [
            one.id for one in live if one.pipeline == name and one.cause is RunCause.DATA and one.id != run.id
        ]
        hold(Law.DUE_START, not others, run.id, "starts beside", others)
        target: Target = STARTING[name]
        if run.data_interval is not None:
            target = interval_text(run.data_interval)
        hold(Law.DUE_START, target in self.due[name], run.id, "starts without a change of", target)
        hold(Law.DUE_START, self._is_complete(name, target), run.id, "starts with a gap in", target)
        hold(Law.DUE_START, run.causes, run.id, "does not say why it starts")
        for cause in run.causes:
            about = _windows(cause.partition) if name == WINDOWED.name else {cause.dataset}
            hold(Law.DUE_START, target in about, run.id, "names", cause)
        self.due[name].discard(target)
        self._last[name, target] = run

    def _is_complete(self, name: PipelineName, target: Target) -> bool:
        made = self._world.ledger.datasets.made
        if name == FOLLOWING.name:
            return all(any(read.dataset == dataset for dataset, _ in made) for read in FOLLOWING.reads)
        wanted = interval_in(target)
        assert wanted is not None
        there = (interval_in(partition) for dataset, partition in made if dataset == STARTING[name])
        return not gaps(wanted, [one for one in there if one is not None])

    def close(self) -> None:
        """At the end, all that is complete has started, and its last run read the newest versions."""
        ledger = self._world.ledger
        for name in self._consumers:
            if ledger.schedules.pipelines[name].state is PipelineState.ACTIVE:
                left = [target for target in self.due[name] if self._is_complete(name, target)]
                hold(Law.DUE_START, not left, name, "never started for", left)
        for (name, target), first in self._last.items():
            run = ledger.runs.all[first.id]
            pins = run.pins.get(WINDOWED.reads[0].name)
            if (
                name != WINDOWED.name
                or pins is None
                or target in self.due[name]
                or name not in self._consumers
            ):
                continue
            for version in pins:
                newest = ledger.datasets.made[STARTING[name], version.partition]
                is_newest = version.number == newest.number
                hold(Law.DUE_START, is_newest, run.id, "pins", version, "not", newest)


def _windows(partition: str) -> set[Target]:
    """The windows that a part of them makes due."""
    changed, schedule = interval_in(partition), WINDOWED.schedule
    assert changed is not None
    assert schedule is not None
    found: set[Target] = set()
    for fire in fires_after(schedule, changed.start):
        window = interval_of(schedule, fire)
        assert window is not None
        if window.start >= changed.end:
            return found
        found.add(interval_text(window))
    return found


def _targets(due: Due) -> set[Target]:
    if due.schedule is None:
        return set(due.changed)
    found = set()
    for extent in due.extents:
        fire = next_fire(due.schedule, extent.start)
        while fire is not None and fire <= extent.end:
            window = interval_of(due.schedule, fire)
            assert window is not None
            found.add(interval_text(window))
            fire = next_fire(due.schedule, fire)
    return found
