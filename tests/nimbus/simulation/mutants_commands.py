"""Bugs of commands, and of their effects on runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.domain.commands import part_of
from nimbus.domain.runs import lifecycle, selection
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.writes import PutCommand
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.rules.commands import answers, selections
from nimbus.engine.rules.commands import runs as run_commands
from nimbus.engine.state.commands import Commands
from nimbus.engine.state.runs import Runs
from nimbus.engine.state.tasks import WaitingTasks
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.mutants_leaders import in_two


@mutant
def pause_is_forgotten_by_the_next_leader() -> Iterator[None]:
    """DS 3.2.2, `processReadyPause`: a pause is a state of the process, not of the record."""
    original = Runs.put

    def put(self: Any, run: Any, *rest: Any) -> None:
        known = run.id in self.live
        original(self, run if known or run.state.is_final else replace(run, paused=None), *rest)

    with replaced(Runs, put=put):
        yield


@mutant
def retry_begins_in_a_paused_run() -> Iterator[None]:
    """A pause holds later tasks, but a due retry begins."""
    original = WaitingTasks.put

    def put(self: Any, run: Any, task: Any) -> None:
        original(self, replace(run, paused=None) if task.attempts else run, task)

    with replaced(WaitingTasks, put=put), replaced(lifecycle, open_attempt=_open_in_any_run):
        yield


_open_attempt = lifecycle.open_attempt


def _open_in_any_run(run: Any, *args: Any, **named: Any) -> Any:
    return replace(_open_attempt(replace(run, paused=None), *args, **named), paused=run.paused)


@mutant
def rerun_is_forgotten_when_its_run_ends() -> Iterator[None]:
    """DS: a command that waits for a workflow stays, and is never examined again."""
    original = Commands.put

    def put(self: Any, queued: Any) -> None:
        original(self, queued)
        self._reruns.clear()

    with replaced(Commands, put=put, _forget_rerun=lambda *_args: None):
        yield


@mutant
def rerun_reuses_what_failed() -> Iterator[None]:
    """DS 13347: tasks that did not run count as done when the run continues."""
    original = selection._instead

    def instead(task: Any, earlier: Any, result: Any) -> Any:
        was = earlier.tasks[task.spec.name]
        if was.state is TaskState.FAILED and was.attempts:
            earlier = replace(
                earlier, tasks=earlier.tasks.replaced([replace(was, state=TaskState.SUCCEEDED)])
            )
        return original(task, earlier, result)

    with replaced(selection, _instead=instead):
        yield


@mutant
def mark_is_answered_apart_from_its_run() -> Iterator[None]:
    """DS 10043: a forced success is written in a second step, which a crash can prevent."""
    original = run_commands._marked

    def marked(*args: Any) -> Any:
        said, _ = original(*args)
        return said, ()

    with replaced(run_commands, _marked=marked):
        yield


@mutant
def selection_begins_again_with_the_next_leader() -> Iterator[None]:
    """The position is a state of the process: the record keeps all targets."""
    original = selections.next_parts

    def next_parts(queued: Any, command: Any, *args: Any) -> Any:
        parts, rest = original(queued, command, *args)
        return parts, replace(rest, queued=command.queued) if rest.targets else rest

    with replaced(answers, next_parts=next_parts):
        yield


@mutant
def selection_loses_its_last_targets() -> Iterator[None]:
    """It is answered when less than a whole part is left."""
    original = selections.next_parts

    def next_parts(queued: Any, command: Any, *args: Any) -> Any:
        parts, rest = original(queued, command, *args)
        return parts, replace(rest, targets={}) if len(rest.targets) < selections.PARTS_AT_ONCE else rest

    with replaced(answers, next_parts=next_parts):
        yield


@mutant
def selection_is_queued_apart_from_its_position() -> Iterator[None]:
    """A leader that dies in between leaves commands that its successor queues again."""
    with replaced(LeaderTerm, _do=in_two(lambda write: isinstance(write, PutCommand) and write.is_new)):
        yield


@mutant
def selection_is_queued_at_once() -> Iterator[None]:
    """A thousand commands in one transaction: all other decisions wait for it."""
    with replaced(selections, islice=lambda targets, _most: targets):
        yield


@mutant
def selection_counts_from_what_waits() -> Iterator[None]:
    """The number of a command is that of the commands that wait: decided ones are forgotten."""
    original = part_of

    with replaced(selections, part_of=lambda of, number: original(of, number % selections.PARTS_AT_ONCE)):
        yield
