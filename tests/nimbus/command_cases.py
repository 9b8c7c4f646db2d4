"""Each type of command, in situations in which it has an effect, and the write with that effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.cluster.settings import ClusterSettings, Hold, HoldOf
from nimbus.domain.data.publications import Accepted, OutsideData, Partitioning, Version
from nimbus.domain.ids import AttemptId, BackfillId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.backfill import BackfillRequest, BackfillState
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunPart, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import TaskState
from nimbus.engine.decision import StoreVersions
from tests.nimbus.definitions import active, digest_of
from tests.nimbus.engine_bench import NOW, RUN, WORKER

P = PipelineName("p")
A, B, ASKED = TaskName("a"), TaskName("b"), TaskName("asked")
NEW = RunId("new")
SPEC = PipelineSpec(
    name=P,
    tasks=(
        TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py"),
        TaskSpec(name=B, kind=TaskKind.PYTHON, script="b.py", needs=(A,)),
        TaskSpec(name=ASKED, kind=TaskKind.APPROVAL, script="", args=("is it good?",)),
    ),
)
OUTSIDE = DatasetName("outside")
SPEC = replace(SPEC, accepts=(Accepted(dataset=OUTSIDE, partition=Partitioning.WHOLE),))
NEWER = replace(SPEC, tasks=SPEC.tasks[:1], accepts=())
START = c.StartRun(pipeline=P, run_id=RUN)
BACKFILL = c.CreateBackfill(
    pipeline=P,
    backfill=BackfillId("b"),
    request=BackfillRequest(
        first=NOW - timedelta(days=3), last=NOW - timedelta(days=1), every=timedelta(days=1)
    ),
)
TOKEN = c.CreateToken(id="0123456789ab", name="bob", role=AccessRole.VIEWER, sha256="0" * 64)
GRANT = c.GrantAccess(who="bob", role=AccessRole.LOGS, on="finance_*", reason="on call")
for spec in (SPEC, NEWER):
    active(spec)  # so that its definition is on the disk
FIRST = AttemptId(RUN, A, 1)

Effect = Callable[[w.Write], bool]


@dataclass(frozen=True)
class Case:
    """A command, the state before it, and the write that executes it."""

    command: c.Command
    done: Effect
    before: tuple[c.Command, ...] = ()
    """Pipelines in addition to the one whose active release is SPEC."""
    failed: bool = False
    """The attempt FIRST has failed."""
    if_match: tuple[str, ...] = ()
    """Its condition (`If-Match`)."""


def run_put(found: Callable[[Run, Run], bool]) -> Effect:
    return lambda write: isinstance(write, w.PutRun) and found(write.before, write.run)


def created(run: RunId) -> Effect:
    return lambda write: isinstance(write, w.CreateRun) and write.run.id == run


def record_put(found: Callable[[Any], bool]) -> Effect:
    return lambda write: isinstance(write, w.PutPipeline) and found(write.record)


def settings_put(found: Callable[[ClusterSettings], bool]) -> Effect:
    return lambda write: isinstance(write, w.PutSettings) and found(write.settings)


def dataset_put(versions: int) -> Effect:
    """`versions`: how many were ever published."""
    return lambda write: isinstance(write, w.PutDataset) and write.dataset.published == versions


PUBLISH = c.PublishDataset(dataset=OUTSIDE, uri="s3://in/1")
PAUSED = (START, c.PauseRun(run_id=RUN))
AGAIN = Selection(scope=Scope.FAILED, reuse=RUN, is_rerun=True)
CASES = {
    "publish": Case(
        c.PublishRelease(pipeline=P, digest=digest_of(NEWER)),
        record_put(lambda record: record.published == digest_of(NEWER)),
    ),
    "publish_and_activate": Case(
        c.PublishRelease(pipeline=P, digest=digest_of(NEWER), activate=True),
        record_put(lambda record: record.release == digest_of(NEWER)),
    ),
    "activate": Case(
        c.ActivatePipeline(pipeline=P, digest=digest_of(NEWER)),
        record_put(lambda record: record.release == digest_of(NEWER)),
    ),
    "pause_pipeline": Case(
        c.PausePipeline(pipeline=P), record_put(lambda record: record.state is PipelineState.PAUSED)
    ),
    "rewind_schedule": Case(
        c.RewindSchedule(pipeline=P, reason="clock"),
        lambda write: isinstance(write, w.ConsumeCommand),  # its schedule is not ahead
    ),
    "remove_pipeline": Case(
        c.RemovePipeline(pipeline=P), lambda write: isinstance(write, w.RemovePipelineRecord)
    ),
    "start": Case(START, created(RUN)),
    "note": Case(
        c.NoteRun(run_id=RUN, pipeline=P, text="known, ticket 12"),
        lambda write: isinstance(write, w.ConsumeCommand),  # the note is written to storage
    ),
    "select": Case(
        c.ActOnSelection(action="stop", of="runs", targets={RUN: P}, reason="many"),
        lambda write: isinstance(write, w.PutCommand) and write.is_new,
        (START,),
    ),
    "start_selected": Case(replace(START, selection=Selection(scope=Scope.FROM, tasks=(A,))), created(RUN)),
    "rerun": Case(replace(START, run_id=NEW, selection=AGAIN), created(NEW), (START,), failed=True),
    "stop": Case(
        c.StopRun(run_id=RUN, reason="late"),
        run_put(lambda was, run: was.verdict is None and run.verdict is RunState.STOPPED),
        (START,),
    ),
    "pause": Case(
        c.PauseRun(run_id=RUN),
        run_put(lambda was, run: not was.paused and run.paused is not None and run.paused.by == "ann"),
        (START,),
    ),
    "resume": Case(
        c.ResumeRun(run_id=RUN), run_put(lambda was, run: was.paused is not None and not run.paused), PAUSED
    ),
    "mark": Case(
        c.MarkTask(run_id=RUN, task=B, state="skipped", reason="by hand"),
        run_put(lambda was, run: was.tasks[B].settled is None and run.tasks[B].settled is not None),
        (START,),
    ),
    "approve": Case(
        c.DecideApproval(run_id=RUN, task=ASKED, approved=True, reason="good"),
        run_put(lambda _, run: run.tasks[ASKED].state is TaskState.SUCCEEDED),
        (START,),
    ),
    "set_pool": Case(
        c.SetPool(pool="db", size=3), settings_put(lambda settings: settings.pools.get("db") == 3)
    ),
    "remove_pool": Case(
        c.RemovePool(pool="db"),
        settings_put(lambda settings: "db" not in settings.pools),
        (c.SetPool(pool="db", size=2),),
    ),
    "set_calendar": Case(
        c.SetCalendar(name="de", days=Calendar(), reason="2027"),
        settings_put(lambda settings: settings.days_of("de") == Calendar()),
    ),
    "remove_calendar": Case(
        c.SetCalendar(name="de", days=None),
        settings_put(lambda settings: not settings.calendars),
        (c.SetCalendar(name="de", days=Calendar()),),
    ),
    "set_share": Case(
        c.SetShare(team="finance", weight=2, reason="month end"),
        settings_put(lambda settings: settings.weight_of("finance") == 2),
    ),
    "remove_share": Case(
        c.SetShare(team="finance", weight=1),
        settings_put(lambda settings: not settings.shares),
        (c.SetShare(team="finance", weight=2),),
    ),
    "set_hold": Case(
        c.SetHold(name="freeze", hold=Hold(of=HoldOf.PREFIX, name=P, reason="incident", held_at=NOW)),
        settings_put(lambda settings: "freeze" in settings.holds),
    ),
    "end_hold": Case(
        c.SetHold(name="freeze", hold=None),
        settings_put(lambda settings: not settings.holds),
        (c.SetHold(name="freeze", hold=Hold(of=HoldOf.ALL, reason="incident", held_at=NOW)),),
    ),
    "set_variable": Case(
        c.SetVariable(name="day", value="1"),
        settings_put(lambda settings: settings.variables == {"day": "1"}),
    ),
    "set_variable_if_unchanged": Case(
        c.SetVariable(name="day", value="2"),
        settings_put(lambda settings: settings.variables == {"day": "2"}),
        (c.SetVariable(name="day", value="1"),),
        if_match=(revisions.of_variable("day", "1"),),
    ),
    "remove_variable": Case(
        c.RemoveVariable(name="day"),
        settings_put(lambda settings: not settings.variables),
        (c.SetVariable(name="day", value="1"),),
    ),
    "cordon": Case(
        c.CordonWorker(worker=WORKER.id, reason="disk"),
        settings_put(lambda settings: WORKER.id in settings.cordoned),
    ),
    "uncordon": Case(
        c.UncordonWorker(worker=WORKER.id),
        settings_put(lambda settings: WORKER.id not in settings.cordoned),
        (c.CordonWorker(worker=WORKER.id, reason="disk"),),
    ),
    "create_backfill": Case(
        BACKFILL, lambda write: isinstance(write, w.PutBackfill) and write.before is None
    ),
    "pause_backfill": Case(
        c.ControlBackfill(backfill=BACKFILL.backfill, to=BackfillState.PAUSED, reason="late"),
        lambda write: (
            isinstance(write, w.PutBackfill)
            and write.before is not None
            and (write.before.state, write.backfill.state) == (BackfillState.ACTIVE, BackfillState.PAUSED)
        ),
        (BACKFILL,),
    ),
    "create_token": Case(TOKEN, settings_put(lambda settings: set(settings.tokens) == {TOKEN.id})),
    "revoke_token": Case(
        c.RevokeToken(id=TOKEN.id), settings_put(lambda settings: not settings.tokens), (TOKEN,)
    ),
    "grant_access": Case(
        GRANT, settings_put(lambda settings: [one.on for one in settings.grants] == [GRANT.on]), (TOKEN,)
    ),
    "revoke_access": Case(
        c.RevokeAccess(who="bob", on=GRANT.on, reason="left"),
        settings_put(lambda settings: not settings.grants),
        (TOKEN, GRANT),
    ),
    "set_owner": Case(c.SetOwner(pipeline=P, owner="ann"), record_put(lambda record: record.owner == "ann")),
    "purge": Case(
        c.PurgeRuns(parts=(RunPart.LOGS,), reason="space", pipeline=P, before=NOW),
        lambda write: isinstance(write, w.ConsumeCommand),  # requests to storage are written there
    ),
    "publish_dataset": Case(PUBLISH, dataset_put(1)),
    "publish_dataset_again": Case(replace(PUBLISH, uri="s3://in/2"), dataset_put(2), (PUBLISH,)),
    "withdraw_dataset": Case(
        c.WithdrawDataset(dataset=OUTSIDE, partition="", reason="wrong"),
        lambda write: (
            isinstance(write, w.PutDataset)
            and (now := write.dataset.newest) is not None
            and now.change is not None
            and now.change.reason == "wrong"
            and write.dataset.published == 3
        ),
        (PUBLISH, replace(PUBLISH, uri="s3://in/2")),
    ),
    "remove_dataset": Case(
        c.RemoveDataset(dataset=OUTSIDE, reason="replaced"),
        lambda write: isinstance(write, w.RemoveDatasetRecord),
        (
            PUBLISH,
            c.PublishRelease(pipeline=P, digest=digest_of(NEWER), activate=True),  # it names no dataset
        ),
    ),
    "abdicate": Case(c.Abdicate(reason="update"), lambda write: isinstance(write, w.PutAbdication)),
}


def stored(effect: StoreVersions) -> tuple[Version, ...]:
    """What history answers in which PUBLISH is the first version of all."""
    if effect.partition is None:
        return effect.versions
    (current,) = effect.known[:1]
    first = replace(current, number=1, outside=OutsideData(uri=PUBLISH.uri))
    return (*effect.versions, current, first)
