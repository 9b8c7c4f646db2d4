"""Builds the API's answers from the domain's records. Pure: no port is called here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from nimbus.api import models as m
from nimbus.api.services import ConfirmedLeader, QueuePlace
from nimbus.domain.attempts.workers import Refusals, WorkerInfo
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.ids import AttemptId, InvalidNameError, WorkerId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.pipeline import PipelineSpec

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
    rows.sort(key=place_in_queue)
    return m.ParticipantsModel(leader=leader_model(leader, schedulers), participants=rows)


def place_in_queue(row: m.ParticipantModel) -> tuple[str | int, ...]:
    """Sort key: the queue in its order, then schedulers that are not in it."""
    return row.queue_position is None, row.queue_position or 0, row.id


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
    attempts = []
    for name in islice(orders, MAX_ORDERS):
        with suppress(InvalidNameError):  # skip an invalid order, and show the others
            attempt = AttemptId.parse(name)
            attempts.append(m.OrderModel(run=attempt.run, task=attempt.task, attempt=attempt.number))
    return attempts


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
    return {worker: refusals for info in schedulers for worker, refusals in info.refusals.items()}


def pipeline_summary(record: PipelineRecord, bad: Mapping[str, str]) -> m.PipelineSummaryModel:
    """One line of the catalog."""
    return m.PipelineSummaryModel.from_records(
        record.profile, record, **_pipeline_fields(record, bad.get(record.name))
    )


def pipeline_model(
    record: PipelineRecord, spec: PipelineSpec | None, quarantined: str | None
) -> m.PipelineModel:
    """One pipeline in full. `spec`: None if its release is not on this disk."""
    return m.PipelineModel.from_records(
        record.profile,
        record,
        **_pipeline_fields(record, quarantined),
        skipped_fires_total=record.skips.total,
        skipped_fires=record.skips.listed,
        spec=spec,
    )


def _pipeline_fields(record: PipelineRecord, quarantined: str | None) -> dict[str, object]:
    first = record.profile.schedule
    position = record.schedule_position if first is None else record.position_of(first)
    return {"quarantined": quarantined, "schedule_position": position}
