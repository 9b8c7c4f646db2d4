"""What effects look up in history, and in outputs of earlier attempts. On their threads.

Runs that others reuse; versions that reads pin, or that a withdrawal publishes again; purges; `for_each`.
All raise NimbusError while history or storage does not answer.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import merge
from itertools import islice

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.outputs import Results
from nimbus.domain.data.publications import Read, Version, earlier
from nimbus.domain.data.reads import MAX_PINNED, Lacking, Partitions, chosen, portion
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs import child_runs
from nimbus.domain.runs.children import LARGEST_ITEMS, SCALAR, ItemsError, items_in
from nimbus.domain.runs.lifecycle import committed_outputs
from nimbus.domain.runs.purge import KeptReason, PurgeOrder, RunNote, fate_of
from nimbus.domain.runs.run import Run, RunPart
from nimbus.engine.decision import StoreVersions
from nimbus.ports import History
from nimbus.templates.lists import file_in
from nimbus.templates.names import TemplateError


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

        Raises RefusedError: the run does not exist, has not ended, or is of another pipeline.
        """
        record = self._read_run(run) or self._history.read(run)
        if record is None:
            raise RefusedError("unknown_run", f"run {run} {fate_of(self._history.purged(run))}.")
        if record.pipeline != pipeline:
            raise RefusedError("other_pipeline", f"run {run} is of pipeline {record.pipeline}.")
        if not record.state.is_final:
            raise RefusedError("run_live", f"run {run} has not ended: its successes can be used later.")
        return record

    def check_none(self, run: RunId) -> None:
        """Check that a run never existed. Raises RefusedError: it exists, or did before it was purged."""
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
        """What the child runs of a task have published, see `nimbus.domain.runs.child_runs`.

        Raises:
            ReadError: there is nothing, or too much.
            RefusedError: an earlier run or a child run is deleted.
        """
        children = child_runs.children_of(run, read, lambda earlier: self.find(earlier, run.pipeline))
        return child_runs.published_by_children(read, (self._child(child) for child in children))

    def _child(self, child: child_runs.Child) -> child_runs.EndedChild:
        run = self.find(child.run, child.pipeline)
        return child_runs.EndedChild(child.item, run, self.results(run))

    def results(self, run: Run) -> Results:
        """Results of a run's tasks, including reused ones."""
        results = {
            name: task.reused.result
            for name, task in run.tasks.items()
            if task.reused is not None and task.reused.result is not None
        }
        wanted: defaultdict[RunId, dict[AttemptId, TaskName]] = defaultdict(dict)
        for name, task in run.tasks.items():
            attempt, source = task.committed, run.id if task.reused is None else task.reused.run
            if name not in results and attempt is not None and attempt.has_result:
                wanted[source][AttemptId(source, name, attempt.number)] = name
        for source, attempts in wanted.items():
            results |= self._given(source, attempts)
        return results

    def _given(self, run: RunId, attempts: Mapping[AttemptId, TaskName]) -> Results:
        seen = self._read_slots(attempts)
        results = {
            attempts[attempt]: slots.end.result
            for attempt, slots in seen.items()
            if slots.end is not None and slots.end.result is not None
        }
        return results if len(results) == len(attempts) else {**self._history.given(run).results, **results}


def found_versions(
    asked: Iterable[tuple[Read, Partitions, Dataset | None]],
    history: History,
    parts: Callable[[Read], tuple[Version, ...]],
) -> Mapping[str, tuple[Version, ...]] | Lacking:
    """The versions that reads pin. Raises as `versions_for`.

    `parts`: finds those of a read with `of`.
    """
    asked = tuple(asked)
    of_others = [read for read in asked if read[0].of is None]
    versions = {
        read.name: versions_for(read, wanted, dataset, history) for read, wanted, dataset in of_others
    }
    if not all(versions[read.name] or read.optional or read.new for read, _, _ in of_others):
        return Lacking(
            {dataset.name: dataset.published for _, _, dataset in of_others if dataset is not None}
        )
    return versions | {read.name: parts(read) for read, _, _ in asked if read.of is not None}


def versions_for(
    read: Read, asked: Partitions, dataset: Dataset | None, history: History
) -> tuple[Version, ...]:
    """The versions that a read pins.

    `dataset` is what the leader keeps of it, which is newer than history; None: nothing is published. History
    has the partitions that the leader no longer keeps.

    Raises ReadError: see `chosen`.
    """
    if dataset is None:
        return ()
    kept = dataset.versions
    if asked.since is not None:
        return portion(_newer(dataset, asked.since, history))
    if asked.latest:  # a record never drops the last interval
        return chosen(read, asked, kept)
    stored: Iterable[Version] = ()
    if dataset.dropped and asked.key:
        stored = filter(None, [history.version(dataset.name, asked.key)])
    elif dataset.dropped:
        stored = history.newest_versions(dataset.name, asked.interval, dataset.longest)
    newest = {version.partition: version for version in islice(stored, MAX_PINNED + 1)}
    newest |= {version.partition: version for version in kept}
    return chosen(read, asked, newest.values(), dataset.spans_from)


def _newer(dataset: Dataset, since: int, history: History) -> Iterable[Version]:
    """The partitions that have changed after a sequence, in the order of these changes.

    What was published after the leader's record was read waits for the next run. History has a part of it:
    not yet what a run under way has published. What retention has deleted is not new, as in history.
    """
    kept = (
        version
        for version in dataset.versions
        if version.sequence > since
        and not (version.keep and version.output and is_purged(version.source.run, history))
    )
    versions = sorted(kept, key=lambda version: version.sequence)
    if dataset.dropped <= since:
        return versions
    here = {version.partition: version.sequence for version in dataset.versions}
    last = max(dataset.dropped, *here.values(), 0)
    stored = (
        version
        for version in history.newer_versions(dataset.name, since)
        if version.partition not in here and version.sequence <= last
    )
    return merge(versions, stored, key=lambda version: version.sequence)


MAX_SEARCHED = 100
"""How many of the newest versions of a partition in history a withdrawal looks at."""


def stored_and_found(effect: StoreVersions, history: History) -> tuple[Version, ...]:
    """The versions that are in history now. For a withdrawal, the wrong one and its substitute come last.

    Raises RefusedError: there is no version before whose output still exists.
    """
    if effect.removes:
        history.forget_dataset(effect.dataset, effect.removes)
        return ()
    history.store_versions(effect.dataset, effect.versions)
    if effect.partition is None:
        return effect.versions
    known = (*effect.known, *history.versions(effect.dataset, MAX_SEARCHED, effect.partition))
    current = max(known, key=lambda version: version.number, default=None)
    if current is None:
        what = f"partition {effect.partition} of {effect.dataset}" if effect.partition else effect.dataset
        raise RefusedError("not_published", f"{what} has no version.")
    for version in earlier(current, known):
        if version.output is None or not is_purged(version.source.run, history):
            return (*effect.versions, current, version)
    raise RefusedError(
        "nothing_before",
        f"version {current.number} of {effect.dataset} is the first one, or all before it were withdrawn, "
        "have the same data, or their outputs are deleted: publish another one, "
        "by a rerun or by `nimbus dataset publish`.",
    )


def is_purged(run: RunId, history: History) -> bool:
    """True when outputs of a run are deleted, or are being deleted."""
    gone = history.purged(run)
    return gone is not None and not {RunPart.OUTPUTS, RunPart.HISTORY}.isdisjoint(gone.parts)


def store_order(history: History, command: CommandId, order: PurgeOrder | RunNote) -> None:
    """Store the order of a purge command, or a note, in object storage, before the command is answered.

    So the order survives the leader, and the next one carries it out (`nimbus.scheduler.purge`). If a leader
    dies before the answer, its successor stores the order again, which changes nothing.

    Raises RefusedError: its run is not in history, or the run's outputs or history must be kept.
    """
    if isinstance(order, RunNote):
        history.put_note(order)
        return
    if (run_id := order.what.run_id) is not None:
        run = history.read(run_id)
        if run is None:
            raise RefusedError("unknown_run", f"run {run_id} {fate_of(history.purged(run_id))}.")
        by = history.reusers(run_id)
        if by and set(order.what.parts) != {RunPart.LOGS}:
            raise RefusedError(
                "run_reused", f"run {run_id} keeps its outputs: {KeptReason.REUSED} ({by[0]})."
            )
        kept = history.kept_version(run, order.at) if set(order.what.parts) != {RunPart.LOGS} else None
        if kept is not None:
            raise RefusedError("run_published", f"run {run_id} keeps its outputs: {kept}.")
    history.order_purge(command, order)


OpenFile = Callable[[str, str], Iterator[bytes] | None]
"""Opens a file of an output, by the reference of the output and the path in it; None: there is none."""


def takes_items(spec: TaskSpec) -> bool:
    """True when a rendered task starts child runs with items from files."""
    return spec.is_wanted and spec.children is not None and bool(spec.children.templates)


def with_items(spec: TaskSpec, run: Run, open_file: OpenFile) -> TaskSpec:
    """A task with the items that it takes from files.

    Raises:
        TemplateError: there is no such file, or it has bad lines.
        OutputsNotHereError: this scheduler cannot read the output.
    """
    if spec.children is None or not takes_items(spec):
        return spec
    most, lists = spec.children.max_items, {}
    for name, text in spec.children.templates.items():
        where = "for_each" if name == SCALAR else f"for_each.{name}"
        task, path = file_in(text) or (spec.name, "")
        output = committed_outputs(run, [task]).get(task)
        pieces = None if output is None else open_file(output, path)
        if pieces is None:
            raise TemplateError(f"{where}: the output of task {task} has no file {path}")
        try:
            lists[name] = items_in(pieces, most)
        except ItemsError as exc:
            raise TemplateError(f"{where}: {path} of task {task}: {exc}") from exc
    if (size := sum(len(json.dumps(items)) for items in lists.values())) > LARGEST_ITEMS:
        raise TemplateError(f"for_each: the files have {size} bytes, {LARGEST_ITEMS} is the most")
    return replace(spec, children=spec.children.with_lists(lists))
