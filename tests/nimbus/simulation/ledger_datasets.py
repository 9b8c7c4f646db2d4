"""The laws of datasets: each success and each command publishes one version, and the newest is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.data.datasets import partition_of
from nimbus.domain.data.publications import NO_SOURCE, Version
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.runs.child_runs import child_of
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World

Partition = tuple[DatasetName, str]


class _Content(NamedTuple):
    """What a version consists of."""

    run: RunId
    source: AttemptId
    uri: str = ""


class _Made(NamedTuple):
    """What a partition must show."""

    number: int
    content: _Content
    first: int
    """The number under which its content was published, not restored."""


def _content_of(version: Version) -> _Content:
    return _Content(version.run, version.source, version.outside.uri if version.outside else "")


class DatasetLaws:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._newest_number = 0
        self.made: dict[Partition, _Made] = {}
        self._ever: dict[Partition, dict[int, _Content]] = {}
        """Everything that was published, by number."""
        self._withdrawn: dict[tuple[Partition, AttemptId, str], int] = {}
        """Data that were withdrawn, and the numbers of their last withdrawals."""
        self._restored: set[int] = set()
        """Numbers of withdrawals."""
        self.published = Counter[DatasetName]()
        self._moved: list[Partition] = []
        self.late = 0
        """How often a run published after a newer one."""
        self.fanned_in = 0
        """How many versions of their own child runs were pinned."""
        self.left = 0
        """How often a version was not found in ZooKeeper (any more)."""
        self._changes: list[tuple[Partition, int]] = []
        """The versions that partitions have shown, by number, in the order of commits."""
        self._new: dict[RunId, tuple[set[int], int]] = {}
        """What runs have pinned with `take: new`: places in this list, and its length then."""
        self._taken: dict[PipelineName, int] = {}
        """Up to which place in this list the runs of pipelines have read."""
        self.news = 0
        """How many versions were read with `take: new` by runs that have succeeded."""
        self.by_commands = Counter[str]()
        """How many commands about datasets were accepted."""

    def committed(self, writes: Sequence[w.Write]) -> None:
        """Record a commit."""
        for write in writes:
            match write:
                case w.CreateRun(run):
                    self._check_number(run.number, run.id)
                    self._check_rerun(run)
                case w.PutRun(run, before):
                    self._check_pins(run, before)
                    self._check_new(run, before)
                    for name, task in run.tasks.items():
                        if task.state is TaskState.SUCCEEDED and before.tasks[name].state is not task.state:
                            self._succeeded(run, task)
                case w.ConsumeCommand(outcome) if outcome.accepted:
                    command = self._world.ledger.submitted.get(outcome.command)
                    if isinstance(command, c.DatasetCommand):
                        self.by_commands[command.type] += 1
                        self._commanded(outcome.command, command)
                case _:
                    pass  # no task ends by it
        if any(isinstance(one, w.PutRun | w.PutDataset | w.RemoveDatasetRecord) for one in writes):
            self._check()

    def _check_number(self, number: int, whose: str) -> None:
        hold(Law.DATASETS, number > self._newest_number, whose, "has number", number)
        self._newest_number = number

    def _commanded(self, key: str, command: c.DatasetCommand) -> None:
        """A command about a dataset was accepted: it is done in the transaction that ends it."""
        name = command.dataset
        if isinstance(command, c.RemoveDataset):
            forgotten = self._world.storage.forgotten  # a deposed leader may still store a version later
            hold(Law.DATASETS, name in forgotten, name, "is removed, and history has it")
            forgotten.discard(name)
            self.made = {place: made for place, made in self.made.items() if place[0] != name}
            self._ever = {place: made for place, made in self._ever.items() if place[0] != name}
            del self.published[name]
            self._changes = [
                ((DatasetName(""), ""), 0) if place[0] == name else (place, number)
                for place, number in self._changes
            ]
            return
        found = self._world.zookeeper.world.datasets[name].version(command.partition)
        hold(Law.COMMAND_ONCE, found is not None and found.change is not None, key, "left", found)
        assert found is not None
        assert found.change is not None
        hold(Law.COMMAND_ONCE, found.change.command == key, key, "left the version of", found.change)
        self._check_number(found.number, key)
        place = name, command.partition
        if isinstance(command, c.PublishDataset):
            content, first = _Content(NO_SOURCE.run, NO_SOURCE, command.uri), found.number
        else:
            current = self.made[place]
            hold(Law.DATASETS, command.number in (None, current.number), key, "withdrew", current)
            self._withdrawn[place, *current.content[1:]] = found.number
            first = self._before(place, current.first)
            hold(Law.DATASETS, found.change.restored == first, key, "restored", found, "and not", first)
            content = self._ever[place][first]
        hold(Law.DATASETS, _content_of(found) == content, key, "left", found, "and not", content)
        self._publish(place, _Made(found.number, content, first))

    def _before(self, place: Partition, first: int) -> int:
        """The newest content that was published before another one, and not withdrawn since."""
        numbers = (
            number
            for number, content in self._ever[place].items()
            if number < first
            and number not in self._restored
            and number > self._withdrawn.get((place, *content[1:]), 0)
        )
        return max(numbers, default=0)

    def _publish(self, place: Partition, made: _Made) -> None:
        self.published[place[0]] += 1
        self._ever.setdefault(place, {})[made.number] = made.content
        if made.first != made.number:
            self._restored.add(made.number)
        newest = max(self.made.get(place, made), made)
        self.late += newest is not made
        if newest is made:
            self._moved.append(place)
            self._changes.append((place, made.number))
        self.made[place] = newest

    def _check_pins(self, run: Run, before: Run) -> None:
        kept = {name: run.pins.get(name) for name in before.pins}
        hold(Law.READS, kept == before.pins, run.id, "had", before.pins, "and has", run.pins)
        for name in run.pins.keys() - before.pins.keys():
            (read,) = (one for one in run.reads if one.name == name)
            for version in run.pins[name]:
                made = self._ever[read.dataset, version.partition].get(version.number)
                there = made == _content_of(version)
                hold(Law.READS, there, run.id, "pinned", version, "which nobody published")
            hold(Law.READS, read.optional or read.new or run.pins[name], run.id, "pinned nothing of", name)
            if read.of is not None:
                self._check_parts(run, read.of, read.dataset, {version.run for version in run.pins[name]})
        for task_name, task in run.tasks.items():
            begins = task.open_attempt is not None and before.tasks[task_name].open_attempt is None
            lacks = set(task.spec.uses) - run.pins.keys()
            hold(Law.READS, not (begins and lacks), run.id, task_name, "begins without", lacks)

    def _check_new(self, run: Run, before: Run) -> None:
        """What a run pins with `take: new` was not read; if it succeeds, it has left nothing before it."""
        for read in run.reads:
            if not read.new or read.name not in run.pins:
                continue
            taken = self._taken.get(run.pipeline, 0)
            if read.name not in before.pins:
                pinned = {((read.dataset, one.partition), one.number) for one in run.pins[read.name]}
                places = {at for at, change in enumerate(self._changes) if change in pinned}
                hold(Law.READS, min(places, default=taken) >= taken, run.id, "reads again", pinned)
                self._new[run.id] = places, len(self._changes)
            is_used = any(
                task.state is TaskState.SUCCEEDED and read.name in task.spec.uses
                for task in run.tasks.values()
            )
            if run.state is RunState.SUCCEEDED and is_used and run.id in self._new:
                places, then = self._new[run.id]
                end = max(places, default=-1) + 1
                for at in set(range(taken, end)) - places:
                    place, _ = self._changes[at]
                    is_left = place[0] == read.dataset and all(
                        later != place for later, _ in self._changes[at + 1 : then]
                    )
                    hold(Law.READS, not is_left, run.id, "has left", self._changes[at])
                self.news += len(places)
                self._taken[run.pipeline] = max(taken, end)

    def _check_rerun(self, run: Run) -> None:
        """A rerun has what the run that it repeats has pinned with `take: new`."""
        earlier = None if run.rerun_of is None else self._world.ledger.runs.all.get(run.rerun_of)
        if earlier is None:
            return
        for read in run.reads:
            if read.new and read.name in earlier.pins:
                kept = run.pins.get(read.name)
                hold(Law.READS, kept == earlier.pins[read.name], run.id, "reads", kept, "and not", earlier.id)
                if earlier.id in self._new:
                    self._new[run.id] = self._new[earlier.id]

    def _check_parts(self, run: Run, name: TaskName, dataset: DatasetName, pinned: set[RunId]) -> None:
        """A read with `of` has all that the last child runs of its own run published, and nothing else."""
        children = run.tasks[name].children
        if run.rerun_of is not None or children is None:
            return  # some child runs may be of an earlier run
        last = {child_of(run, name, index) for index in range(len(children.tried))}
        contents = (one for place, made in self._ever.items() if place[0] == dataset for one in made.values())
        made = {one.run for one in contents if one.run in last}
        self.fanned_in += len(pinned)
        hold(Law.READS, pinned == made, run.id, "pinned parts of", pinned, "and its child runs made", made)

    def _succeeded(self, run: Run, task: TaskRun) -> None:
        for publication in task.spec.publishes:
            source = run.tasks[publication.of or task.spec.name]
            partition = partition_of(publication, run)
            if source.committed is None or partition is None:
                continue
            of = run.id if source.reused is None else source.reused.run
            content = _Content(run.id, AttemptId(of, source.spec.name, source.committed.number))
            self._publish((publication.dataset, partition), _Made(run.number, content, run.number))

    def withdrawable(self) -> list[Partition]:
        """Partitions that were published more than once."""
        return [place for place in self.made if len(self._ever[place]) > 1]

    def moved(self) -> list[Partition]:
        """The partitions whose newest version has changed since the last call."""
        moved, self._moved = self._moved, []
        return moved

    def _check(self) -> None:
        """Compare with what ZooKeeper and history hold after a commit."""
        found = self._world.zookeeper.world.datasets
        for (name, partition), made in self.made.items():
            there = name in found
            hold(Law.DATASETS, there, name, "was published and is not there")
            version = found[name].version(partition)
            if version is None:  # it has left ZooKeeper
                self.left += 1
                version = self._world.storage.versions_of[name].get((partition, made.number))
                hold(Law.DATASETS, version is not None, made, "is lost", partition)
            assert version is not None
            is_so = (version.number, _content_of(version)) == made[:2]
            hold(Law.DATASETS, is_so, version, "is not", made)
        counts = {name: dataset.published for name, dataset in found.items()}
        hold(Law.DATASETS, counts == dict(self.published), counts, "and there were", self.published)
