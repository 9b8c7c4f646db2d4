"""The law of datasets: each success publishes one version, and a partition shows that of its newest run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from nimbus.domain import writes as w
from nimbus.domain.child_runs import child_of
from nimbus.domain.datasets import partition_of
from nimbus.domain.ids import AttemptId, DatasetName, RunId, TaskName
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun, TaskState
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


class _Made(NamedTuple):
    """What a partition must show."""

    created: int
    """How many runs were created before its run."""
    run: RunId
    source: AttemptId


class DatasetLaws:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._created: dict[RunId, int] = {}
        self._newest_number = 0
        self.made: dict[tuple[DatasetName, str], _Made] = {}
        self._ever: set[tuple[DatasetName, str, _Made]] = set()
        self.published = Counter[DatasetName]()
        self._moved: list[tuple[DatasetName, str]] = []
        self.late = 0
        """How often a run published after a newer one."""
        self.fanned_in = 0
        """How many versions of their own child runs were pinned."""
        self.left = 0
        """How often a version was not found in ZooKeeper (any more)."""

    def written(self, write: w.Write) -> None:
        """Record one write."""
        match write:
            case w.CreateRun(run):
                self._created[run.id] = len(self._created)
                hold(Law.DATASETS, run.number > self._newest_number, run.id, "has number", run.number)
                self._newest_number = run.number
            case w.PutRun(run, before):
                self._check_pins(run, before)
                for name, task in run.tasks.items():
                    if task.state is TaskState.SUCCEEDED and before.tasks[name].state is not task.state:
                        self._succeeded(run, task)
            case _:
                pass  # no task ends by it

    def _check_pins(self, run: Run, before: Run) -> None:
        kept = {name: run.pins.get(name) for name in before.pins}
        hold(Law.READS, kept == before.pins, run.id, "had", before.pins, "and has", run.pins)
        for name in run.pins.keys() - before.pins.keys():
            (read,) = (one for one in run.reads if one.name == name)
            for version in run.pins[name]:
                made = _Made(self._created[version.run], version.run, version.source)
                there = (read.dataset, version.partition, made) in self._ever
                hold(Law.READS, there, run.id, "pinned", version, "which nobody published")
            hold(Law.READS, read.optional or run.pins[name], run.id, "pinned nothing of", name)
            if read.of is not None:
                self._check_parts(run, read.of, read.dataset, {version.run for version in run.pins[name]})
        for task_name, task in run.tasks.items():
            begins = task.open_attempt is not None and before.tasks[task_name].open_attempt is None
            lacks = set(task.spec.uses) - run.pins.keys()
            hold(Law.READS, not (begins and lacks), run.id, task_name, "begins without", lacks)

    def _check_parts(self, run: Run, name: TaskName, dataset: DatasetName, pinned: set[RunId]) -> None:
        """A read with `of` has all that the last child runs of its own run published, and nothing else."""
        children = run.tasks[name].children
        if run.rerun_of is not None or children is None:
            return  # some child runs may be of an earlier run
        last = {child_of(run, name, index) for index in range(len(children.tried))}
        made = {one.run for of, _, one in self._ever if of == dataset and one.run in last}
        self.fanned_in += len(pinned)
        hold(Law.READS, pinned == made, run.id, "pinned parts of", pinned, "and its child runs made", made)

    def _succeeded(self, run: Run, task: TaskRun) -> None:
        for publication in task.spec.publishes:
            source = run.tasks[publication.of or task.spec.name]
            partition = partition_of(publication, run)
            if source.committed is None or partition is None:
                continue
            self.published[publication.dataset] += 1
            of = run.id if source.reused is None else source.reused.run
            made = _Made(
                self._created[run.id], run.id, AttemptId(of, source.spec.name, source.committed.number)
            )
            key = publication.dataset, partition
            self._ever.add((*key, made))
            self.late += self.made.get(key, made) > made
            newest = max(self.made.get(key, made), made)
            if newest is made:
                self._moved.append(key)
            self.made[key] = newest

    def moved(self) -> list[tuple[DatasetName, str]]:
        """The partitions whose newest version has changed since the last call."""
        moved, self._moved = self._moved, []
        return moved

    def check(self) -> None:
        """Compare with what ZooKeeper and history hold after a commit."""
        found = self._world.zookeeper.world.datasets
        for (name, partition), made in self.made.items():
            there = name in found
            hold(Law.DATASETS, there, name, "was published and is not there")
            version = found[name].version(partition)
            if version is None:  # it has left ZooKeeper
                self.left += 1
                hold(Law.DATASETS, made.run in self._world.storage.history, made, "is lost", partition)
            else:
                hold(Law.DATASETS, (version.run, version.source) == made[1:], version, "is not", made)
        counts = {name: dataset.published for name, dataset in found.items()}
        hold(Law.DATASETS, counts == dict(self.published), counts, "and there were", self.published)
