"""Builds the API's answers from the domain's records. Pure: no port is called here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from functools import partial
from graphlib import TopologicalSorter
from itertools import islice

from nimbus.api import models as m
from nimbus.api.children import children_model
from nimbus.api.explain.task import ClusterFacts, how_kept, why, why_run
from nimbus.api.models_datasets import ChangeModel, OutsideModel, VersionModel
from nimbus.api.models_runs import AttemptModel, RunModel, RunSummaryModel, SettlementModel, TaskModel
from nimbus.api.services import HistoryServers, LeaderView, QueuePlace
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import AttemptId, InvalidNameError, TaskName, WorkerId
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.places import in_cluster
from nimbus.domain.publications import Outside, Version
from nimbus.domain.run import ListedRun, Run
from nimbus.domain.schedulers import SchedulerInfo, clocks_differ_s, leader_report
from nimbus.domain.schema import older_than
from nimbus.domain.slots import Slots, application_id
from nimbus.domain.task_run import Attempt, TaskRun, TaskState
from nimbus.domain.wording import natural
from nimbus.domain.workers import Refusals, WorkerInfo

MOST_ORDERS = 20
"""Limit of orders of one worker in a list of workers."""


def leader_model(leader: LeaderView | None, schedulers: Iterable[SchedulerInfo]) -> m.LeaderModel | None:
    """The confirmed leader, with the start of its leadership from its registration."""
    if leader is None:
        return None
    since = next((s.leader_since for s in schedulers if s.id == leader.id and s.epoch == leader.epoch), None)
    return m.LeaderModel(id=leader.id, address=leader.address, epoch=leader.epoch, leader_since=since)


def participants_model(
    queue: Sequence[QueuePlace], schedulers: Sequence[SchedulerInfo], leader: LeaderView | None
) -> m.ParticipantsModel:
    """Join queue and registrations. A scheduler that is only in one of them is shown, too."""
    places = {place.id: place for place in queue}
    known = {info.id: info for info in schedulers}
    rows = []
    for name in places.keys() | known.keys():
        place, info = places.get(name), known.get(name)
        update = {
            "registered": info is not None,
            # The queue is current, while a registration is as old as its last report.
            "queue_position": place.position if place else None,
            "is_leader": leader is not None and leader.id == name,
        }
        if info is None:
            rows.append(
                m.ParticipantModel.model_validate({"id": name, "boot_id": place and place.boot_id, **update})
            )
        else:
            fields = {field: getattr(info, field, None) for field in m.ParticipantModel.model_fields}
            rows.append(m.ParticipantModel.model_validate({**fields, **update}))
    rows.sort(key=lambda row: (row.queue_position is None, row.queue_position or 0, row.id))
    return m.ParticipantsModel(leader=leader_model(leader, schedulers), participants=rows)


def worker_models(
    workers: Iterable[WorkerInfo],
    orders: Mapping[WorkerId, Sequence[str]],
    refused: Mapping[WorkerId, Refusals],
    cordoned: Mapping[WorkerId, str],
) -> list[m.WorkerModel]:
    """Workers by id, with their orders and refusals."""
    models = []
    workers = tuple(workers)
    busy = busy_slots(orders, workers)
    for worker in sorted(workers, key=lambda worker: worker.id):
        update: dict[str, object] = {
            "busy": busy.get(worker.id, 0),
            "in_clusters": worker.orders_in_clusters,
            "attempts": _attempts(orders.get(worker.id, ())),
            "cordoned": cordoned.get(worker.id),
        }
        if worker.id in refused:
            found = refused[worker.id]
            update |= {"refusals": found.count, "backoff_until": found.until}
        models.append(m.WorkerModel.model_validate(worker).model_copy(update=update))
    return models


def _attempts(orders: Iterable[str]) -> list[m.OrderModel]:
    """The first orders of a worker."""
    found = []
    for name in islice(orders, MOST_ORDERS):
        with suppress(InvalidNameError):  # skip an invalid order, and show the others
            one = AttemptId.parse(name)
            found.append(m.OrderModel(run=one.run, task=one.task, attempt=one.number))
    return found


def busy_slots(
    orders: Mapping[WorkerId, Sequence[str]], workers: Iterable[WorkerInfo]
) -> dict[WorkerId, int]:
    """Number of busy slots of each worker. Orders with drivers in clusters take no slots."""
    return {
        worker.id: max(0, len(orders.get(worker.id, ())) - worker.orders_in_clusters) for worker in workers
    }


def quarantined(schedulers: Iterable[SchedulerInfo]) -> dict[str, str]:
    """Quarantined pipelines with the reason, as reported by the leader."""
    return {name: reason for info in schedulers for name, reason in info.quarantined.items()}


def refusals(schedulers: Iterable[SchedulerInfo]) -> dict[WorkerId, Refusals]:
    """Workers that did not start their last attempts, as reported by the leader."""
    return {worker: found for info in schedulers for worker, found in info.refusals.items()}


def status_model(
    *,
    leader: LeaderView | None,
    info: SchedulerInfo,
    schema: int | None,
    schedulers: Sequence[SchedulerInfo],
    workers: Sequence[WorkerInfo],
    busy: Mapping[WorkerId, int],
    pipelines: Sequence[PipelineRecord],
    runs: Iterable[ListedRun],
    max_running: int | None,
    commands: Sequence[QueuedCommand],
    succession: str = "",
) -> m.StatusModel:
    """The counts of the cluster."""
    report = leader_report(schedulers)
    return m.StatusModel(
        leader=leader_model(leader, schedulers),
        answered_by=info.id,
        answered_by_lacks=info.lacks,
        version=info.version,
        schedulers=len(schedulers),
        schedulers_ready=sum(scheduler.ready for scheduler in schedulers),
        workers=len(workers),
        slots=sum(worker.slots for worker in workers if not worker.draining),
        slots_busy=sum(busy.values()),
        pipelines=dict(Counter(record.state.value for record in pipelines)),
        runs=dict(Counter(run.state.value for run in runs)),
        runs_max_running=max_running,
        clocks_differ_s=clocks_differ_s((*schedulers, *workers)),
        runs_counted=len(in_cluster(run for run in runs if not run.state.is_final)),
        commands_waiting=len(commands),
        quarantined=quarantined(schedulers),
        set_aside=[m.SetAsideModel.model_validate(one) for one in report.set_aside],
        set_aside_count=report.set_aside_count,
        succession=succession,
        cluster_schema=schema,
        newest_schema=info.newest_schema,
        older=list(older_than(info.newest_schema, schedulers, workers)),
    )


def pipeline_summary(record: PipelineRecord, bad: Mapping[str, str]) -> m.PipelineSummaryModel:
    """One line of the catalog."""
    return m.PipelineSummaryModel.model_validate(_pipeline_fields(record, bad))


def pipeline_model(
    record: PipelineRecord, spec: PipelineSpec | None, bad: Mapping[str, str]
) -> m.PipelineModel:
    """One pipeline in full. `spec`: None if its release is not on this disk."""
    return m.PipelineModel.model_validate(
        {
            **_pipeline_fields(record, bad),
            "skipped_fires_total": record.skips.total,
            "skipped_fires": record.skips.listed,
            "spec": None if spec is None else m.PipelineSpecModel.model_validate(spec),
        }
    )


def _pipeline_fields(record: PipelineRecord, bad: Mapping[str, str]) -> dict[str, object]:
    profile = record.profile
    return {
        "name": record.name,
        "owner": record.owner,
        "state": record.state,
        "description": profile.description,
        "tags": profile.tags,
        "runbook": profile.runbook,
        "release": record.release,
        "published": record.published,
        "schedule": m.ScheduleModel.model_validate(profile.schedule) if profile.schedule else None,
        "more_schedules": [m.ScheduleModel.model_validate(one) for one in profile.more_schedules],
        "starts_by_data": profile.starts_by_data,
        "concurrency": m.ConcurrencyModel.model_validate(profile.concurrency)
        if profile.concurrency
        else None,
        "tasks": profile.tasks,
        "quarantined": bad.get(record.name),
        "schedule_position": record.position_of(profile.schedule)
        if profile.schedule
        else record.schedule_position,
        "positions": record.positions,
        "updated_at": record.updated_at,
    }


def run_summary(run: Run, *, archived: bool = False) -> RunSummaryModel:
    """One line of the list of runs."""
    return RunSummaryModel.model_validate(_run_fields(run, archived))


def run_model(
    run: Run,
    slots: Mapping[AttemptId, Slots],
    facts: ClusterFacts,
    servers: HistoryServers,
    *,
    archived: bool = False,
    only: Iterable[TaskRun] | None = None,
) -> RunModel:
    """One run, with an explanation of every wait. `only`: the tasks that it shows; None: all."""
    return RunModel.model_validate(
        {
            **_run_fields(run, archived),
            "parameters": dict(run.parameters),
            "variables": dict(run.variables),
            "causes": [
                {name: getattr(cause, name) for name in ("dataset", "partition", "run", "at")}
                for cause in run.causes
            ],
            "reads": [
                {"name": read.name, "dataset": read.dataset, "pinned": _count(run.pins.get(read.name))}
                for read in run.reads
            ],
            "verdict": run.verdict,
            "deadline": run.deadline,
            "why": why_run(run, facts),
            "failure_strategy": run.failure_strategy,
            "tasks": [
                _task(run, task, slots, facts, servers) for task in (in_order(run) if only is None else only)
            ],
        }
    )


def _count(versions: Sized | None) -> int | None:
    return None if versions is None else len(versions)


def version_model(version: Version) -> VersionModel:
    """One version of a dataset."""
    return VersionModel(
        partition=version.partition,
        number=version.number,
        run=version.run,
        task=version.task,
        source=str(version.source) if version.run else "",
        output=version.output,
        at=version.at,
        outside=None if (of := version.outside) is None else _outside(of),
        change=None if version.change is None else ChangeModel.model_validate(version.change),
        item=version.item,
    )


def _outside(outside: Outside) -> OutsideModel:
    digest = f"sha256:{outside.sha256}" if outside.sha256 else None
    return OutsideModel(uri=outside.uri, digest=digest, value=outside.value)


def _run_fields(run: Run, archived: bool) -> dict[str, object]:
    names = ("id", "pipeline", "release", "state", "reason", "cause", "priority")
    more = ("submitted_by", "paused", "parent", "rerun_of", "selected", "note")
    times = ("logical_date", "data_interval", "timezone", "created_at", "started_at", "finished_at")
    return {
        **{name: getattr(run, name) for name in (*names, *more, *times)},
        "keeps_running": run.keeps_running,
        "tasks_total": len(run.tasks),
        "tasks_done": len(run.tasks)
        - run.tasks.count(TaskState.WAITING, TaskState.RUNNING, TaskState.NOT_RUN),
        "archived": archived,
    }


def in_order(run: Run) -> list[TaskRun]:
    """Tasks, each after its needs: by depth, then by name."""
    tasks, depth = dict(run.tasks), dict[TaskName, int]()
    for name in TopologicalSorter({name: task.spec.needs for name, task in tasks.items()}).static_order():
        depth[name] = max((1 + depth[need] for need in tasks[name].spec.needs), default=0)
    return [tasks[name] for name in sorted(tasks, key=lambda name: (depth[name], natural(name)))]


def _task(
    run: Run,
    task: TaskRun,
    slots: Mapping[AttemptId, Slots],
    facts: ClusterFacts,
    servers: HistoryServers,
) -> TaskModel:
    current, place = task.open_attempt, task.spec.spark_place
    page = partial(servers.page, None if place is None else place.target)
    seen = slots.get(AttemptId(run.id, task.spec.name, current.number)) if current else None
    return TaskModel(
        name=task.spec.name,
        kind=task.spec.kind,
        state=task.state,
        needs=list(task.spec.needs),
        retry_at=task.retry_at,
        why=why(run, task, seen, facts),
        kept=how_kept(task, facts.now),
        attempts=[_attempt(attempt, seen if attempt is current else None, page) for attempt in task.attempts],
        children=children_model(task),
        settled=None if task.settled is None else SettlementModel.model_validate(task.settled),
        reused_from=None if task.reused is None else task.reused.run,
    )


def _attempt(attempt: Attempt, slots: Slots | None, page: Callable[[str], str | None]) -> AttemptModel:
    """`page`: returns the page of an application in the history server."""
    model = AttemptModel.model_validate(attempt)
    if attempt.application is not None:
        model = model.model_copy(update={"history_url": page(attempt.application)})
    if slots is None:
        return model
    claim, told = slots.claim, slots.progress.get("application")
    update: dict[str, object] = {
        "progress": dict(slots.progress) or None,
        "application": application_id(told),
        "checkpoint": None if slots.checkpoint is None else json.loads(slots.checkpoint),
    }
    if claim is not None and not claim.is_fenced:
        update |= {"host": claim.host, "pid": claim.pid, "started_at": attempt.started_at or claim.claimed_at}
    return model.model_copy(update=update)
