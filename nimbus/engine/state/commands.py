"""Updates waiting commands, and the results of their effects.

Commands are answered in lines: one for each pipeline, each run and each dataset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from itertools import chain, takewhile

from nimbus.domain.commands import (
    ActivatePipeline,
    CreateBackfill,
    PublishRelease,
    QueuedCommand,
    RemoveDataset,
    StartRun,
    is_urgent,
)
from nimbus.domain.data.publications import Version
from nimbus.domain.ids import CommandId, DatasetName, RunId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.writes import ConsumeCommand, PutCommand
from nimbus.engine.decision import Built, Jobs, Refusal
from nimbus.engine.work_queue import Instant, Key, WorkQueue

PARTS_EVERY_S = 0.05
"""Pause between two parts of a selection, so that one turn has little more than one of them."""


class CommandLines:
    """The lines. A command that waits for its release or its run blocks the commands behind it."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, dict[CommandId, None]] = defaultdict(dict)

    def __contains__(self, line: str) -> bool:
        return line in self._lines

    def join(self, queued: QueuedCommand) -> None:
        """Append a command to its lines, unless it is in them already."""
        for line in lines_of(queued):
            self._lines[line].setdefault(queued.id)

    def leave(self, queued: QueuedCommand) -> list[CommandId]:
        """Remove a command from its lines. Return the commands that are first in them now."""
        firsts = []
        for line in lines_of(queued):
            rest = self._lines[line]
            rest.pop(queued.id, None)
            if rest:
                firsts.append(next(iter(rest)))
            else:
                del self._lines[line]
        return firsts

    def is_first(self, queued: QueuedCommand) -> bool:
        """True when no older command about the same pipeline, run or dataset is before it."""
        return all(self.first(line) in (None, queued.id) for line in lines_of(queued))

    def ahead_of(self, queued: QueuedCommand) -> list[CommandId]:
        """Older commands about the same pipeline or run."""
        lines = (takewhile(lambda other: other != queued.id, self._lines[line]) for line in lines_of(queued))
        return [*chain.from_iterable(lines)]

    def first(self, line: str) -> CommandId | None:
        """The oldest command of a line."""
        return next(iter(self._lines[line])) if line in self._lines else None


def lines_of(queued: QueuedCommand) -> Iterator[str]:
    """The lines of a command: its pipeline, run, dataset. The prefix of the others keeps equal names apart.

    A rerun may have to wait for the end of a run, so it does not block its pipeline's line.
    """
    pipeline, run, waits = (getattr(queued.command, name, "") for name in ("pipeline", "run_id", "rerun_of"))
    if pipeline and not waits:
        yield pipeline
    if run:
        yield f"run {run}"
    if dataset := getattr(queued.command, "dataset", ""):
        yield f"dataset {dataset}"


class Commands:
    """Waiting commands, in the lines in which they are answered."""

    def __init__(self, work: WorkQueue, builds: Jobs[Key, Built], live: Container[RunId]) -> None:
        self._work = work
        self._builds = builds
        self._live = live
        self.waiting: dict[CommandId, QueuedCommand] = {}
        """Oldest first."""
        self.rests_until_s: dict[CommandId, float] = {}
        """When selections may queue more of their commands."""
        self.lines = CommandLines()
        """Lines of the commands that are not parked."""
        self._reruns: defaultdict[RunId, dict[CommandId, None]] = defaultdict(dict)
        """Commands that start a rerun, by the run that they repeat and whose end they wait for."""
        self.releases = Jobs[ReleaseOf, PipelineSpec | Refusal]()
        """Releases fetched to this disk. The next command of a pipeline reads the disk again."""
        self.stored = Jobs[CommandId, Refusal | tuple[Version, ...]]()
        """What commands need in object storage, stored by another thread."""

    def waiting_reruns(self, stop: QueuedCommand) -> list[QueuedCommand]:
        """Older commands that start the run of `stop`, and still wait for the end of the repeated run."""
        ahead = (self.waiting[command] for command in self.lines.ahead_of(stop))
        return [
            queued
            for queued in ahead
            if isinstance(queued.command, StartRun) and queued.command.rerun_of in self._live
        ]

    def name_run(self, run: RunId) -> bool:
        """True while a command that names a run waits, in its line or parked."""
        if f"run {run}" in self.lines:
            return True
        parked = (self.waiting.get(item.command) for item in self._work.parked if item.kind == "command")
        return any(queued is not None and getattr(queued.command, "run_id", None) == run for queued in parked)

    def put(self, queued: QueuedCommand) -> None:
        """Add a waiting command."""
        if queued.id not in self.waiting:
            self.waiting[queued.id] = queued
            if isinstance(queued.command, StartRun) and queued.command.rerun_of is not None:
                self._reruns[queued.command.rerun_of][queued.id] = None
            self.line_up(queued.id)

    def apply(self, write: ConsumeCommand | PutCommand, now: Instant) -> None:
        """Apply a write about a command; a replaced one is a selection that has queued some of its own."""
        if isinstance(write, ConsumeCommand):
            self.drop(write.outcome.command)
        elif write.is_new:
            self.put(write.queued)
        else:
            self.waiting[write.queued.id] = write.queued
            self.rests_until_s[write.queued.id] = now.elapsed_s + PARTS_EVERY_S

    def line_up(self, command: CommandId) -> None:
        """Append a command to its lines, and queue it. One that is parked gets no line."""
        if Key("command", command) in self._work.parked or command not in self.waiting:
            return
        self.lines.join(self.waiting[command])
        self._enqueue(command)

    def leave_lines(self, command: CommandId) -> None:
        """Remove a command from its lines, and queue the commands that are first now."""
        for first in self.lines.leave(self.waiting[command]):
            self._enqueue(first)

    def enqueue_reruns(self, of: RunId | None = None) -> None:
        """Queue commands that repeat a run; None: all of them, as they are in no line."""
        commands = chain.from_iterable(self._reruns.values()) if of is None else self._reruns.get(of, ())
        for command in commands:
            if Key("command", command) not in self._work.parked:
                self._enqueue(command)

    def _enqueue(self, command: CommandId) -> None:
        self._work.add(Key("command", command), urgent=is_urgent(self.waiting[command].command))

    def enqueue_removals(self, dataset: DatasetName) -> None:
        """Queue commands that remove a dataset."""
        for command, queued in self.waiting.items():
            if isinstance(queued.command, RemoveDataset) and queued.command.dataset == dataset:
                self._work.add(Key("command", command))

    def drop(self, command: CommandId) -> None:
        """Remove a command that has left the queue."""
        key = Key("command", command)
        self._work.forget(key)
        self._builds.forget(key)
        self.stored.forget(command)
        self.rests_until_s.pop(command, None)
        if command in self.waiting:
            self.leave_lines(command)
            queued = self.waiting.pop(command)
            if run := getattr(queued.command, "run_id", None):
                self._work.add(Key("finished", run))
            if isinstance(queued.command, StartRun) and queued.command.rerun_of is not None:
                self._forget_rerun(queued.command.rerun_of, command)
            if isinstance(queued.command, PublishRelease | ActivatePipeline | CreateBackfill):
                of_others = self.releases.results.items()
                self.releases.results = {
                    command: kept
                    for command, kept in of_others
                    if command.pipeline != queued.command.pipeline
                }

    def _forget_rerun(self, run: RunId, command: CommandId) -> None:
        self._reruns[run].pop(command, None)
        if not self._reruns[run]:
            del self._reruns[run]

    def release_prepared(self, release: ReleaseOf, result: PipelineSpec | Refusal) -> None:
        """Record that a release is on this disk, or is not available."""
        if self.releases.finish(release, result):
            first = self.lines.first(release.pipeline)
            if first is not None:
                self._enqueue(first)

    def stored_for(self, command: CommandId, answer: Refusal | tuple[Version, ...] | None) -> None:
        """Record that what a command needs is stored, or refused."""
        if self.stored.finish(command, answer or ()):
            self._work.add(Key("command", command))

    def keep_from(self, before: Commands) -> None:
        """Copy what ZooKeeper does not have."""
        self.releases.keep_from(before.releases)
        self.stored.keep_from(before.stored)

    def keep_waiting(self) -> None:
        """Drop what was kept about commands that do not wait any more."""
        self.releases.keep_only(lambda release: release.pipeline in self.lines)
        self.stored.keep_only(self.waiting.__contains__)
