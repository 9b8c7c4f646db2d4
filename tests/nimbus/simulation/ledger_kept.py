"""The laws of tasks that are kept running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import TaskState
from tests.nimbus.simulation.catalog import STREAM
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.ledger_runs import RunLaws
    from tests.nimbus.simulation.world import World


class KeptLaws:
    """See the module."""

    def __init__(self, world: World, runs: RunLaws) -> None:
        self._world, self._runs = world, runs

    def committed(self, writes: Sequence[w.Write]) -> None:
        """After each commit."""
        live = [run for run in self._runs.live.values() if run.pipeline == STREAM.name and _is_kept(run)]
        going = [run for run in live if run.verdict is None]
        hold(Law.KEPT, len(going) <= 1, "several go on:", [run.id for run in going])
        begun = [run.id for run in live if run.open_attempts()]
        hold(Law.KEPT, len(begun) <= 1, "several have attempts:", begun)
        for at, write in enumerate(writes):
            match write:
                case w.PutRun(run, before):
                    self._check_end(before, run)
                case w.CreateRun(run) if run.pipeline == STREAM.name and run.cause is RunCause.ACTIVATION:
                    asked = [one.outcome.command for one in writes if isinstance(one, w.ConsumeCommand)]
                    hold(Law.KEPT, any(map(run.id.endswith, asked)), run.id, "is created without its command")
                case w.ConsumeCommand(outcome) if outcome.accepted:
                    # A mark in the same transaction may have ended the run since.
                    ended = [
                        later.before
                        for later in writes[at:]
                        if isinstance(later, w.PutRun) and later.run.state.is_final and _goes_on(later.before)
                    ]
                    command = self._world.ledger.submitted.get(outcome.command)
                    self._check_activation(command, [*going, *ended])
                case _:
                    pass

    def _check_end(self, before: Run, run: Run) -> None:
        for was, task in run.tasks.changes_since(before.tasks):
            if was is None or not task.spec.keeps_running or not task.state.is_final:
                continue
            by_hand = task.settled is not None and task.settled.by == "ann"
            skipped = task.state in (TaskState.SKIPPED, TaskState.NOT_RUN) and not was.attempts
            ended = run.verdict is not None or by_hand or skipped
            hold(Law.KEPT, ended, AttemptId(run.id, task.spec.name, task.tried), "is the last:", task.state)

    def _check_activation(self, command: c.Command | None, going: Sequence[Run]) -> None:
        """The run of the active release goes on, when the command is done."""
        match command:
            case (
                c.ActivatePipeline(pipeline=STREAM.name)
                | c.PublishRelease(pipeline=STREAM.name, activate=True)
            ):
                release = self._world.ledger.schedules.pipelines[STREAM.name].release
                hold(
                    Law.KEPT, [run.release for run in going] == [release], "active:", release, "runs:", going
                )
            case _:
                pass


def _goes_on(run: Run) -> bool:
    return run.pipeline == STREAM.name and _is_kept(run) and run.verdict is None


def _is_kept(run: Run) -> bool:
    return any(task.spec.keeps_running and not task.state.is_final for task in run.tasks.values())
