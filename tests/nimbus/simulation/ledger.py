"""Records every commit independently of the engine, and checks the laws of each write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import TaskState
from tests.nimbus.dict_cluster import World as Records
from tests.nimbus.simulation import places
from tests.nimbus.simulation.laws import Law, hold
from tests.nimbus.simulation.ledger_alerts import AlertLaws
from tests.nimbus.simulation.ledger_attempts import AttemptLaws
from tests.nimbus.simulation.ledger_backfills import BackfillLaws
from tests.nimbus.simulation.ledger_children import ChildLaws
from tests.nimbus.simulation.ledger_datasets import DatasetLaws
from tests.nimbus.simulation.ledger_due import DueLaws
from tests.nimbus.simulation.ledger_intervals import IntervalLaws
from tests.nimbus.simulation.ledger_kept import KeptLaws
from tests.nimbus.simulation.ledger_late import LateLaws
from tests.nimbus.simulation.ledger_runs import RunLaws
from tests.nimbus.simulation.ledger_schedules import ScheduleLaws
from tests.nimbus.simulation.ledger_selections import SelectionLaws
from tests.nimbus.simulation.ledger_shares import ShareLaws
from tests.nimbus.simulation.ledger_terms import TermLaws

if TYPE_CHECKING:
    from tests.nimbus.simulation.store import FaultyStore
    from tests.nimbus.simulation.world import World


class Ledger:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.runs = RunLaws(world)
        self.children = ChildLaws(self.runs)
        self.attempts = AttemptLaws(world, self.runs)
        self.schedules = ScheduleLaws(world, self.runs)
        self.alerts = AlertLaws()
        self.shares = ShareLaws(world)
        self.terms = TermLaws()
        self.late = LateLaws()
        self.intervals = IntervalLaws(world)
        self.datasets = DatasetLaws(world)
        self.due = DueLaws(world)
        self.backfills = BackfillLaws(self.runs)
        self.kept = KeptLaws(world, self.runs)
        self.submitted: dict[CommandId, c.Command] = {}
        self.selections = SelectionLaws(self.submitted)
        self.outcomes: dict[CommandId, c.CommandOutcome] = {}
        self.executions: set[AttemptId] = set()
        self.settings = world.zookeeper.world.settings
        self.abdicated: set[int] = set()
        """Epochs whose leaders have accepted to resign."""

    # -- from the workers' side

    def executed(self, attempt: AttemptId, shown_s: float) -> None:
        """User code of an attempt begins. `shown_s`: when the board was last read, and had no END.

        An END may be written between that read and this moment: the code runs, and commits nothing.
        """
        hold(Law.CODE_ONCE, attempt not in self.executions, attempt)
        self.executions.add(attempt)
        ended = self.attempts.ends.get(attempt)
        was_unseen = ended is not None and shown_s <= self.attempts.ended_s[attempt]
        hold(Law.ONE_AT_A_TIME, ended is None or was_unseen, attempt, "starts though its END says", ended)
        for other in self._world.computing():
            same_task = (other.run, other.task) == (attempt.run, attempt.task)
            if same_task and other < attempt:
                end = self.attempts.ends.get(other)
                cut_off = end is not None and end.written_by == "leader"  # its host seemed to be lost
                is_kept = self.runs.all[attempt.run].tasks[attempt.task].spec.keeps_running
                cut_off &= not is_kept or self._is_stopped(other)
                hold(Law.ONE_AT_A_TIME, cut_off, attempt, "computes beside", other)

    def _is_stopped(self, attempt: AttemptId) -> bool:
        """True if the process that would end its driver is stopped."""
        stopped = (process.shells for process in self._world.processes() if process.paused)
        return any(shell.folder.attempt == attempt for shells in stopped for shell in shells)

    # -- from the leader's side

    def committed(self, store: FaultyStore, writes: Sequence[w.Write], before: Records) -> None:
        """Record a commit, write by write."""
        who, epoch = store.scheduler.name, store.epoch
        self._world.story.note(who, "commits in epoch", epoch, writes)
        hold(Law.FENCED, epoch == before.epoch, who, "wrote in epoch", epoch, "of", before.epoch)
        self.selections.committed(writes)
        resumed = {
            command.run_id
            for write in writes
            if isinstance(write, w.ConsumeCommand)
            and isinstance(command := self.submitted.get(write.outcome.command), c.ResumeRun)
        }
        for at, write in enumerate(writes):
            self.backfills.written(write, writes[at + 1 :])
            self._holds_hold(write)
            match write:
                case w.PutSettings(settings):
                    self.settings = settings
                    self.schedules.check_calendars()
                case w.ConsumeCommand(outcome):
                    self._decided(outcome)
                case w.CreatePipeline() | w.PutPipeline() | w.RemovePipelineRecord():
                    self.alerts.pipeline_written(write)
                    self.schedules.written(write, writes[at + 1 :])
                case w.CreateAlert() | w.PutAlert() | w.RemoveAlert() | w.PutHealth() | w.RemoveHealth():
                    self.alerts.written(write)
                    self.late.written(write, self.runs.all)
                case w.CreateRun() | w.PutRun() | w.RemoveRun():
                    self.alerts.run_written(write, writes, before)
                    self.runs.written(write, self.schedules.pipelines, resumed)
                    self.children.written(write)
                    self.shares.written(write, store.scheduler.engine.term.state)
                case _:
                    self.attempts.written(write, store)
            if isinstance(write, w.CreateRun):
                self.schedules.started(write.run)
            if isinstance(write, w.CreateRun | w.PutRun):
                self.attempts.run_written(write.run)
                self.late.run_written(write.run, writes)
            self.intervals.written(write)
        self.datasets.committed(writes)
        self.terms.committed(epoch, writes)
        self.backfills.check()
        if any(isinstance(write, w.PutRun | w.PutIntervals) for write in writes):
            self.intervals.check()
        self.due.committed(writes, self.datasets.moved())
        self.attempts.check_orders()
        self.children.committed()
        self.kept.committed(writes)

    def is_held(self, pipeline: PipelineName) -> bool:
        """True if a hold is about a pipeline."""
        record = self.schedules.pipelines[pipeline]
        return any(one.covers(record) for one in self.settings.holds.values())

    def _holds_hold(self, write: w.Write) -> None:
        """No run of a held pipeline begins, and none is created but by a command, which queues it.

        A rerun whose tasks are all marked or reused begins nothing: it has ended when it is created.
        """
        pipelines, holds = self.schedules.pipelines, self.settings.holds
        match write:
            case w.CreateRun(run) if run.parent is None and run.pipeline in pipelines:
                held = holds and places.is_held(replace(run, started_at=None), pipelines, holds)
                asked = run.cause in (RunCause.MANUAL, RunCause.ACTIVATION)
                late = asked and (run.state is RunState.QUEUED or run.state.is_final)
                hold(Law.HELD, not held or late, run.id, run.cause, run.state, "begins, and is held")
            case w.PutRun(run, before) if before.state is RunState.QUEUED and run.state is RunState.RUNNING:
                held = holds and places.is_held(before, pipelines, holds)
                hold(Law.HELD, not held, run.id, "starts, and is held")
            case w.PutPipeline(record, was) if record.positions_of_all != was.positions_of_all:
                # Two commands of one transaction have one time; the second one may be a rewind.
                asked = record.updated_at != was.updated_at or record.rewound_from != was.rewound_from
                hold(Law.HELD, asked or not self.is_held(record.name), record.name, "moves, and is held")
            case _:
                pass

    def _decided(self, outcome: c.CommandOutcome) -> None:
        command = self.submitted.get(outcome.command)
        hold(Law.COMMAND_ONCE, command is not None, "decided, but never submitted:", outcome)
        hold(Law.COMMAND_ONCE, outcome.command not in self.outcomes, "twice:", outcome)
        self.outcomes[outcome.command] = outcome
        if outcome.accepted and command is not None:
            if isinstance(command, c.Abdicate):
                self.abdicated.add(outcome.epoch)
            hold(Law.COMMAND_ONCE, self._is_done(command), "accepted, and not done:", command)

    def _is_done(self, command: c.Command) -> bool:
        """True if the records show the effect of an accepted command."""
        runs, pipelines = self.runs.all, self.schedules.pipelines
        match command:
            case (
                c.SetPool()
                | c.RemovePool()
                | c.SetShare()
                | c.SetCalendar()
                | c.SetHold()
                | c.SetVariable()
                | c.RemoveVariable()
                | c.CordonWorker()
                | c.UncordonWorker()
            ):
                return self._is_set(command)
            case c.CreateBackfill() | c.ControlBackfill():
                return self.backfills.is_done(command)
            case c.StartRun(run_id=run):
                return run in runs and runs[run].rerun_of == command.rerun_of
            case c.StopRun(run_id=run) if run not in runs:
                return self._is_withdrawn(run)
            case c.StopRun() | c.PauseRun() | c.ResumeRun() | c.MarkTask() | c.DecideApproval():
                return self._is_so(command, runs[command.run_id])
            case c.PausePipeline(pipeline=name) | c.ActivatePipeline(pipeline=name):
                paused = isinstance(command, c.PausePipeline)
                return pipelines[name].state is (PipelineState.PAUSED if paused else PipelineState.ACTIVE)
            case c.PublishRelease(pipeline=name, digest=digest):
                return pipelines[name].published == digest
            case c.SetOwner(pipeline=name) | c.RemovePipeline(pipeline=name):
                return name not in pipelines or getattr(command, "owner", "") == pipelines[name].owner
            case (
                c.Abdicate()
                | c.PurgeRuns()
                | c.RewindSchedule()
                | c.ActOnSelection()
                | c.NoteRun()
                | c.CreateToken()
                | c.RevokeToken()
                | c.GrantAccess()
                | c.RevokeAccess()
                | c.PublishDataset()
                | c.WithdrawDataset()
                | c.RemoveDataset()
            ):
                # It is executed later, see `engine_laws`; a purge changes nothing in ZooKeeper; few schedules
                # are ahead, see `ledger_schedules`; see `ledger_datasets`; nobody asks for the others.
                return True

    def _is_withdrawn(self, run: RunId) -> bool:
        starts = {
            key
            for key, command in self.submitted.items()
            if isinstance(command, c.StartRun) and command.run_id == run
        }
        return bool(starts) and all(
            key in self.outcomes and self.outcomes[key].code == "withdrawn" for key in starts
        )

    def _is_so(self, command: c.LiveRunCommand, run: Run) -> bool:
        match command:
            case c.StopRun():
                return run.state.is_ending
            case c.PauseRun():
                return run.paused is not None
            case c.ResumeRun():
                return run.paused is None
            case c.MarkTask(task=task, state=state):
                return run.tasks[task].state == state and run.tasks[task].settled is not None
            case c.DecideApproval(task=task, approved=approved):
                return run.tasks[task].state is (TaskState.SUCCEEDED if approved else TaskState.FAILED)

    def _is_set(self, command: c.SettingsCommand) -> bool:
        match command:
            case c.SetPool(pool=pool, size=size):
                return self.settings.pools[pool] == size
            case c.RemovePool(pool=pool):
                return pool not in self.settings.pools
            case c.SetShare(team=team, weight=weight):
                return self.settings.weight_of(team) == weight
            case c.SetCalendar(name=name, days=days):
                return self.settings.days_of(name) == days
            case c.SetHold(name=name, hold=wanted):
                return (name in self.settings.holds) == (wanted is not None)
            case c.SetVariable(name=name, value=value):
                return self.settings.variables[name] == value
            case c.RemoveVariable(name=name):
                return name not in self.settings.variables
            case c.CordonWorker() | c.UncordonWorker():
                return (command.worker in self.settings.cordoned) == isinstance(command, c.CordonWorker)

    def withdrawn(self, command: CommandId) -> None:
        """A command was deleted by hand, so it needs no outcome."""
        del self.submitted[command]

    def close(self) -> None:
        """After the calm: the records here equal those of ZooKeeper."""
        found = self._world.zookeeper.world
        hold(Law.COMMAND_ANSWERED, self.submitted.keys() == self.outcomes.keys(), self._unanswered())
        expected = replace(
            found,
            runs=self.runs.live,
            pipelines=self.schedules.pipelines,
            settings=self.settings,
            alerts=self.alerts.kept,
            terms=self.terms.kept,
        )
        self.alerts.close()
        self.due.close()
        hold(Law.FENCED, found == expected, "ZooKeeper holds what no leader has written")

    def _unanswered(self) -> list[CommandId]:
        return sorted(self.submitted.keys() - self.outcomes.keys())
