"""Bugs of tasks that are kept running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from nimbus.domain import writes as w
from nimbus.domain.runs import lifecycle
from nimbus.engine.decision import Decision
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.rules.commands import pipelines as pipeline_commands
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.mutants_leaders import in_two


@mutant
def activation_does_not_wait_for_the_end_of_the_old_run() -> Iterator[None]:
    """The new release starts beside the old one, on the same checkpoint."""
    at_once = SimpleNamespace(**{**vars(lifecycle), "queued": lambda run: run})
    with replaced(pipeline_commands, lifecycle=at_once):
        yield


@mutant
def activation_forgets_the_run_of_the_old_release() -> Iterator[None]:
    original = pipeline_commands.handed_over

    def handed_over(*args: Any) -> Any:
        told = original(*args)
        return (
            tuple(one for one in told if not isinstance(one, w.PutRun)) if isinstance(told, tuple) else told
        )

    with replaced(pipeline_commands, handed_over=handed_over):
        yield


@mutant
def kept_run_is_created_after_its_activation() -> Iterator[None]:
    """A leader that is killed in between leaves an active release without its run."""
    original = LeaderTerm._do
    apart = in_two(lambda write: not isinstance(write, w.CreateRun))

    def do(self: Any, key: Any, decision: Decision, now: Any) -> None:
        is_split = any(isinstance(one, w.CreateRun) and one.run.keeps_running for one in decision.writes)
        (apart if is_split else original)(self, key, decision, now)

    with replaced(LeaderTerm, _do=do):
        yield


@mutant
def kept_task_has_a_last_attempt() -> Iterator[None]:
    """It succeeds, or its infrastructure failures are counted, as those of any task."""
    original = lifecycle._after_end

    def after_end(run: Any, task: Any, *more: Any) -> Any:
        ended = original(run, replace(task, spec=replace(task.spec, keeps_running=False)), *more)
        return replace(ended, spec=task.spec)

    with replaced(lifecycle, _after_end=after_end):
        yield
