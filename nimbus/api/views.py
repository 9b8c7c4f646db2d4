"""Builds the API's answers from the domain's records. Pure: no port is called here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from nimbus.api import models as m
from nimbus.api.services import ConfirmedLeader, QueuePlace
from nimbus.domain.attempts.workers import Refusals, WorkerInfo
from nimbus.domain.cluster.schedulers import SchedulerInfo, clocks_differ_s, leader_report
from nimbus.domain.cluster.schema import older_than
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import AttemptId, InvalidNameError, WorkerId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.run import ListedRun
from nimbus.domain.starts.places import in_cluster

MAX_ORDERS = 20


def leader_model(leader: ConfirmedLeader | None, schedulers: Iterable[SchedulerInfo]) -> m.LeaderModel | None:
    """The confirmed leader, with the start of its leadership from its registration."""
    if leader is None:
        return None
    since = next((s.leader_since for s in schedulers if s.id == leader.id and s.epoch == leader.epoch), None)
    return m.LeaderModel.from_records(leader, leader_since=since)


def participants_model(
    queue: Sequence[QueuePlace], schedulers: Sequence[SchedulerInfo], leader: ConfirmedLeader | None
) -> m.ParticipantsModel:
    """Join queue and registrations. A scheduler that is only in one of them is shown, too."""
    places = {place.id: place for place in queue}
    known = {info.id: info for info in schedulers}
    rows = [
        m.ParticipantModel.from_records(
            known.get(name),
            places.get(name),
            registered=name in known,
            # The queue is current, while a registration is as old as its last report.
            queue_position=places[name].position if name in places else None,
            is_leader=leader is not None and leader.id == name,
        )
        for name in places.keys() | known.keys()
    ]
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
        refusal = refused.get(worker.id)
        model = m.WorkerModel.from_records(
            worker,
            busy=busy.get(worker.id, 0),
            in_clusters=worker.orders_in_clusters,
            attempts=_attempts(orders.get(worker.id, ())),
            cordoned=cordoned.get(worker.id),
            refusals=0 if refusal is None else refusal.count,
            backoff_until=None if refusal is None else refusal.until,
        )
        models.append(model)
    return models


def _attempts(orders: Iterable[str]) -> list[m.OrderModel]:
    """The first orders of a worker."""
    found = []
    for name in islice(orders, MAX_ORDERS):
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
    leader: ConfirmedLeader | None,
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
    return m.PipelineSummaryModel.from_records(record.profile, record, **_pipeline_fields(record, bad))


def pipeline_model(
    record: PipelineRecord, spec: PipelineSpec | None, bad: Mapping[str, str]
) -> m.PipelineModel:
    """One pipeline in full. `spec`: None if its release is not on this disk."""
    return m.PipelineModel.from_records(
        record.profile,
        record,
        **_pipeline_fields(record, bad),
        skipped_fires_total=record.skips.total,
        skipped_fires=record.skips.listed,
        spec=spec,
    )


def _pipeline_fields(record: PipelineRecord, bad: Mapping[str, str]) -> dict[str, object]:
    first = record.profile.schedule
    position = record.schedule_position if first is None else record.position_of(first)
    return {"quarantined": bad.get(record.name), "schedule_position": position}
