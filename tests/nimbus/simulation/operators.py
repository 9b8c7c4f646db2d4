"""Users who send commands to the leader, sometimes the same command twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from nimbus.domain import commands as c
from nimbus.domain.cluster.settings import Hold, HoldOf
from nimbus.domain.ids import BackfillId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.backfill import BackfillRequest, BackfillState, OnFailure, Order, Reprocess
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import TaskState
from tests.nimbus.simulation.catalog import (
    CALENDAR,
    CALENDARS,
    FANNING,
    FIRST,
    GIVING,
    KEYS,
    LANDING,
    MISSING,
    NAMES,
    POOLS,
    SECOND,
    SPARE,
    STREAM,
    TEAMS,
    TICKING,
    WINDOWED,
    WORKING,
)
from tests.nimbus.simulation.clocks import START

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World

_WEIGHTS = {
    "start": 12,
    "stop": 5,
    "pause_run": 2,
    "resume_run": 3,
    "rerun": 4,
    "mark": 3,
    "pause": 2,
    "rewind": 2,
    "activate": 4,
    "publish": 3,
    "remove": 1,
    "pool": 1,
    "share": 1,
    "hold": 2,
    "calendar": 4,
    "cordon": 1,
    "decide": 6,
    "backfill": 5,
    "abdicate": 1,
    "data": 14,
    "select": 3,
}
_MARKS: tuple[Literal["succeeded", "skipped"], ...] = ("succeeded", "skipped")


class Operators:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._runs = self._backfills = self._published = 0

    def ask(self) -> None:
        """Send a random command."""
        command = self._command(self._world.rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0])
        self.submit(command)
        if self._world.rng.random() < 0.1:
            self.submit(command)

    def delete_one(self) -> None:
        """Delete a waiting command by hand."""
        waiting = self._world.zookeeper.world.commands
        if waiting:
            key = self._world.rng.choice(list(waiting))
            self._world.ledger.withdrawn(key)
            self._world.zookeeper.delete_command(key)

    def submit(self, command: c.Command) -> None:
        """Queue a command; it is durable, so it counts as accepted."""
        self._numbers += 1
        key = CommandId(f"cmd-{self._numbers:010d}")
        self._world.ledger.submitted[key] = command
        self._world.story.note("operator", "asks", key, command)
        self._world.zookeeper.submit(
            c.QueuedCommand(id=key, command=command, submitted_at=START, submitted_by="ann")
        )

    def _cordon(self) -> c.Command:
        worker = self._world.rng.choice(self._world.workers).id
        if worker in self._world.zookeeper.world.settings.cordoned:
            return c.UncordonWorker(worker=worker)
        return c.CordonWorker(worker=worker, reason="asked", drain=self._world.rng.random() < 0.7)

    def _decision(self) -> c.Command:
        """A command for a waiting approval, if there is one."""
        rng = self._world.rng
        waiting = [
            (run.id, task.spec.name)
            for run in self._world.ledger.runs.live.values()
            for task in run.tasks.values()
            if not task.spec.kind.uses_worker and is_ready(run, task)
        ]
        run, task = rng.choice(waiting or [(RunId("unknown"), TaskName("b"))])
        return c.DecideApproval(run_id=run, task=task, approved=rng.random() < 0.7, reason="asked")

    def _backfill(self) -> c.Command:
        rng = self._world.rng
        if self._backfills and rng.random() < 0.4:
            states = (
                BackfillState.ACTIVE,
                BackfillState.ACTIVE,
                BackfillState.PAUSED,
                BackfillState.CANCELLED,
            )
            known = BackfillId(f"backfill-{rng.randint(1, self._backfills)}")
            return c.ControlBackfill(backfill=known, to=rng.choice(states), reason="asked")
        self._backfills += 1
        last = START - timedelta(minutes=rng.randint(0, 60))
        return c.CreateBackfill(
            pipeline=rng.choice(NAMES),
            backfill=BackfillId(f"backfill-{self._backfills}"),
            request=BackfillRequest(
                first=last - timedelta(minutes=rng.randint(1, 30)),
                last=last,
                max_parallel=rng.randint(1, 4),
                reprocess=rng.choice(list(Reprocess)),
                order=rng.choice(list(Order)),
                on_failure=rng.choice(list(OnFailure)),
                as_one_run=rng.random() < 0.1,
            ),
            digest=rng.choice((None, None, FIRST, SECOND)),
        )

    def _start(self, pipeline: PipelineName) -> c.StartRun:
        rng = self._world.rng
        if rng.random() < 0.5:
            return self._publishing()
        pipeline = rng.choice((pipeline, pipeline, pipeline, FANNING.name))
        return c.StartRun(pipeline=pipeline, run_id=RunId(f"{pipeline}-by-hand-{self._runs}"))

    def _publishing(self) -> c.StartRun:
        """A run that publishes what consumers read: again for an interval, or the whole."""
        pipeline = self._world.rng.choice((GIVING.name, TICKING.name, TICKING.name))
        end = START - timedelta(minutes=2 * self._world.rng.randint(0, 1))
        interval = DataInterval(start=end - timedelta(minutes=2), end=end)
        return c.StartRun(
            pipeline=pipeline,
            run_id=RunId(f"{pipeline}-by-hand-{self._runs}"),
            data_interval=interval if pipeline == TICKING.name else None,
        )

    def _command(self, verb: str) -> c.Command:
        rng, pipeline = self._world.rng, self._world.rng.choice(NAMES)
        match verb:
            case "start":
                self._runs += 1
                return self._start(pipeline)
            case "stop" | "pause_run" | "resume_run" | "rerun" | "mark":
                return self._about_run(verb)
            case "pause" | "rewind":
                rewind = c.RewindSchedule(pipeline=pipeline, reason="asked")
                return rewind if verb == "rewind" else c.PausePipeline(pipeline=pipeline)
            case "activate":
                pipeline = rng.choice((pipeline, STREAM.name, WINDOWED.name))
                digest = rng.choice((None, FIRST, SECOND))
                return c.ActivatePipeline(pipeline=pipeline, digest=digest, drop_due=rng.random() < 0.4)
            case "publish":
                digest = rng.choice((FIRST, SECOND, SECOND, MISSING))
                return c.PublishRelease(pipeline=pipeline, digest=digest, activate=rng.random() < 0.7)
            case "remove":
                return c.RemovePipeline(pipeline=pipeline)
            case "pool":
                return c.SetPool(pool=rng.choice(list(POOLS)), size=rng.randint(0, 3))
            case "abdicate":
                return c.Abdicate(reason="asked")
            case _:
                others: dict[str, Callable[[], c.Command]] = {
                    "cordon": self._cordon,
                    "decide": self._decision,
                    "backfill": self._backfill,
                    "select": self._selection,
                    "share": self._share,
                    "hold": self._hold,
                    "calendar": self._calendar,
                }
                return others.get(verb, self._about_data)()

    def _selection(self) -> c.ActOnSelection:
        """The same command for many runs or pipelines, also for some that cannot be stopped or repeated."""
        rng, runs = self._world.rng, self._world.ledger.runs
        action: Literal["stop", "rerun", "pause", "resume"]
        of: Literal["runs", "pipelines"]
        if rng.random() < 0.2:
            records = self._world.ledger.schedules.pipelines.values()
            active = {record.name: record.release for record in records if record.release is not None}
            targets = {str(name): str(digest) for name, digest in active.items()}
            action, of = rng.choice(("pause", "resume", "resume")), "pipelines"
        else:
            action, of = rng.choice(("stop", "rerun", "pause", "resume", "resume")), "runs"
            fitting = [run for run in runs.all.values() if action != "rerun" or run.state.is_final]
            known = rng.sample(fitting, min(len(fitting), rng.randint(1, 6)))
            targets = {str(run.id): str(run.pipeline) for run in known}
        return c.ActOnSelection(
            action=action,
            of=of,
            targets=targets or {"unknown": str(NAMES[0])},
            reason="asked",
            scope=rng.choice(("all", "failed")),
            same_release=rng.random() < 0.5,
        )

    def _hold(self) -> c.Command:
        """Hold some pipelines, often with an end, or end a hold."""
        rng, name = self._world.rng, self._world.rng.choice(("freeze", "night"))
        if rng.random() < 0.3:
            return c.SetHold(name=name, hold=None)
        of = rng.choice(list(HoldOf))
        about = {HoldOf.ALL: "", HoldOf.TEAM: rng.choice(TEAMS[1:]), HoldOf.TAG: "nightly"}
        until = self._world.worker_now() + timedelta(seconds=rng.randint(-20, 300))
        held = Hold(
            of=of,
            name=about.get(of, rng.choice(NAMES)[: rng.randint(1, 4)]),
            reason="asked",
            until=None if rng.random() < 0.3 else until,
            alert_after=timedelta(seconds=30),
            held_at=START,
        )
        return c.SetHold(name=name, hold=held)

    def _calendar(self) -> c.Command:
        """Set or remove the calendar, or change which schedules follow it."""
        rng = self._world.rng
        if rng.random() < 0.3:
            return c.ActivatePipeline(pipeline=WORKING.name, digest=rng.choice((FIRST, SECOND)))
        return c.SetCalendar(name=CALENDAR, days=rng.choice((None, *CALENDARS, *CALENDARS)), reason="asked")

    def _share(self) -> c.Command:
        """Set the owner of a pipeline, or the weight of a team."""
        rng = self._world.rng
        if rng.random() < 0.5:
            return c.SetOwner(pipeline=rng.choice(NAMES), owner=rng.choice(TEAMS) or None)
        return c.SetShare(team=rng.choice(TEAMS[1:]), weight=rng.choice((0, 1, 1, 2, 3)))

    def _about_data(self) -> c.Command:
        """Publish a version from outside, withdraw one, or remove a dataset."""
        rng, laws = self._world.rng, self._world.ledger.datasets
        verb = rng.choice(("publish", "publish", "publish", "withdraw", "withdraw", "remove"))
        dataset, partition = rng.choice((LANDING, SPARE)).dataset, rng.choice(KEYS)
        if verb == "publish":
            self._published += 1
            return c.PublishDataset(dataset=dataset, partition=partition, uri=f"s3://in/{self._published}")
        if verb == "withdraw":
            dataset, partition = rng.choice([(dataset, partition)] * 5 + laws.withdrawable())
            known = laws.made.get((dataset, partition))
            number = known.number if known and rng.random() < 0.5 else None
            return c.WithdrawDataset(dataset=dataset, partition=partition, number=number, reason="asked")
        if rng.random() < 0.5:
            return c.ActivatePipeline(pipeline=GIVING.name, digest=rng.choice((FIRST, SECOND, SECOND)))
        return c.RemoveDataset(dataset=SPARE.dataset, reason="asked")

    def _about_run(self, verb: str) -> c.Command:
        runs, rng = self._world.ledger.runs, self._world.rng
        live = [run.id for run in runs.live.values() if not run.state.is_final]
        known = list(runs.all) or [RunId("unknown")]
        run = rng.choice(live if live and rng.random() < 0.5 else known[-6:])
        match verb:
            case "rerun" if run in self._world.ledger.runs.all:
                return self._rerun(self._world.ledger.runs.all[run])
            case "mark":
                task, state = self._world.rng.choice("abc"), self._world.rng.choice(_MARKS)
                return c.MarkTask(run_id=run, task=TaskName(task), state=state, reason="asked")
            case "pause_run":
                return c.PauseRun(run_id=run)
            case "resume_run":
                return c.ResumeRun(run_id=run)
            case _:
                return c.StopRun(run_id=self._pending_rerun() or run, reason="asked")

    def _pending_rerun(self) -> RunId | None:
        """Sometimes a run that has not begun."""
        ledger, rng = self._world.ledger, self._world.rng
        pending = [
            command.run_id
            for key, command in ledger.submitted.items()
            if isinstance(command, c.StartRun) and command.rerun_of and key not in ledger.outcomes
        ]
        return rng.choice(pending) if pending and rng.random() < 0.5 else None

    def _rerun(self, run: Run) -> c.Command:
        rng = self._world.rng
        self._runs += 1
        scope = rng.choice(tuple(Scope))
        tasks = () if scope in (Scope.ALL, Scope.FAILED) else (TaskName("a"),)
        marks = {TaskName("a"): TaskState.SUCCEEDED} if scope is Scope.FAILED and rng.random() < 0.3 else {}
        return c.StartRun(
            pipeline=run.pipeline,
            run_id=RunId(f"{run.pipeline}-again-{self._runs}"),
            parameters=run.parameters,
            logical_date=run.logical_date,
            data_interval=run.data_interval,
            release=rng.choice((run.release, None)),
            selection=Selection(
                scope=scope,
                tasks=tasks,
                reuse=run.id,
                is_rerun=True,
                marks=marks,
                keeps_releases=rng.random() < 0.5,
            ),
        )
