"""Routes about schedulers and their settings, workers, leadership and alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from nimbus.api import models as m
from nimbus.api import views
from nimbus.api.models import Model, PageModel, of
from nimbus.api.paging import Paging
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import PipelineNameText, ReasonBody
from nimbus.api.routes.terms import succession
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, Submit
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.schedulers import SchedulerInfo, clocks_differ_s, leader_report
from nimbus.domain.cluster.schema import older_than
from nimbus.domain.commands import Abdicate
from nimbus.domain.starts.places import in_cluster
from nimbus.ports import AlertNotSentError


class AbdicationBody(ReasonBody):
    """Ask the leader to hand over."""

    to: str = Field(
        "", max_length=253, description="The scheduler that leads next; empty: the next in the queue."
    )


class WantedSlotsModel(Model):
    """Slots that ready tasks lack, on workers with these labels and this target."""

    labels: list[str]
    target: str | None
    """Null: they need none."""
    slots: int
    """Tasks whose drivers run in a cluster take none, so for all of them it is 1."""
    since: datetime
    """When the oldest of these tasks became ready."""
    waited_s: float


class WantedModel(Model):
    """What workers must be added for."""

    reported_at: datetime | None
    """When the leader has said so, some seconds ago. Null: there is none, or it has not counted them yet."""
    wanted: list[WantedSlotsModel]
    """Empty: no ready task lacks a worker."""


@of(Alert, leave_out=("epoch", "runbook"))
class AlertModel(Model):
    """One message to one target."""


class AlertsModel(PageModel):
    """Waiting alerts, alerts sent in the last hour, and failed ones of the last 7 days; oldest first."""

    alerts: list[AlertModel]
    targets: dict[str, str]
    """Kinds of the answering scheduler's targets, by name."""


class AlertTestModel(Model):
    """Result of a test."""

    target: str
    sent: bool
    error: str


def _alert_routes(services: ApiServices, prefix: str) -> APIRouter:
    routes = APIRouter(tags=["alerts"], prefix=prefix)

    @routes.get("/alerts")
    def alerts(paging: Paging) -> AlertsModel:
        """Waiting alerts, and alerts that ended lately."""
        page = paging.page(services.reader.alerts(), lambda alert: (alert.raised_at.isoformat(), alert.id))
        return AlertsModel(
            alerts=[AlertModel.from_records(alert) for alert in page.rows],
            targets=dict(services.alerts.kinds),
            **page.rest,
        )

    @routes.post("/alerts/targets/{name}/test")
    def test(name: PipelineNameText) -> AlertTestModel:
        """Send a test message from the answering scheduler. It is not stored, and not tried again."""
        if name not in services.alerts.kinds:
            known = ", ".join(sorted(services.alerts.kinds)) or "none"
            raise ObjectNotFoundError(
                "unknown_target", f"there is no alert target {name} in alerts.targets; known: {known}."
            )
        try:
            services.alerts.send(name)
        except AlertNotSentError as exc:
            return AlertTestModel(target=name, sent=False, error=str(exc))
        return AlertTestModel(target=name, sent=True, error="")

    return routes


class SettingModel(m.Model):
    """One key of the configuration."""

    key: str
    """`section.name`."""
    value: Any
    """The value in the form of the file: durations as text, sizes in bytes; a secret is `***`."""
    origin: str
    """`default`, `file:line` or `environment NAME`."""
    default: bool
    """True: the value is the default."""


class SettingsModel(m.Model):
    """Every key, in the order of the example configuration."""

    answered_by: str
    settings: list[SettingModel]


def effective_settings(services: ApiServices) -> SettingsModel:
    """The settings of this scheduler, with masked secrets."""
    rows = [SettingModel.from_records(setting, default=setting.is_default) for setting in services.settings]
    return SettingsModel(answered_by=services.health.info().id, settings=rows)


def known_workers(services: ApiServices, schedulers: Iterable[SchedulerInfo]) -> list[m.WorkerModel]:
    """Registered workers, by id. `schedulers`: the registered ones."""
    reader = services.reader
    known, refused = reader.workers(), views.refusals(schedulers)
    orders = reader.orders(worker.id for worker in known)
    return views.worker_models(known, orders, refused, reader.settings().cordoned)


def wanted_slots(services: ApiServices) -> WantedModel:
    """What the leader has reported last."""
    leader = max(services.reader.schedulers(), key=lambda scheduler: scheduler.epoch or 0, default=None)
    if leader is None or leader.report.wanted is None:
        return WantedModel(reported_at=None, wanted=[])
    now = services.clock.now()
    rows = [
        WantedSlotsModel.from_records(
            want, target=want.target or None, waited_s=max(0.0, (now - want.since).total_seconds())
        )
        for want in leader.report.wanted
    ]
    return WantedModel(reported_at=leader.reported_at, wanted=rows)


def cluster_status(services: ApiServices, schedulers: Collection[SchedulerInfo]) -> m.StatusModel:
    """The counts of the cluster. `schedulers`: the registered ones."""
    reader, info, leader = services.reader, services.health.info(), services.health.leader()
    workers, runs = reader.workers(), reader.run_list().values()
    busy = views.busy_slots(reader.orders(worker.id for worker in workers), workers)
    return m.StatusModel.from_records(
        leader_report(schedulers),
        info,
        leader=views.leader_model(leader, schedulers),
        answered_by=info.id,
        answered_by_lacks=info.lacks,
        schedulers=len(schedulers),
        schedulers_ready=sum(scheduler.ready for scheduler in schedulers),
        workers=len(workers),
        slots=sum(worker.slots for worker in workers if not worker.draining),
        slots_busy=sum(busy.values()),
        pipelines=Counter(record.state.value for record in reader.pipelines()),
        runs=Counter(run.state.value for run in runs),
        runs_max_running=services.max_running,
        clocks_differ_s=clocks_differ_s((*schedulers, *workers)),
        runs_counted=len(in_cluster(run for run in runs if not run.state.is_final)),
        commands_waiting=len(reader.commands()),
        quarantined=views.quarantined(schedulers),
        succession=succession(services, schedulers).said,
        cluster_schema=services.health.schema(),
        older=older_than(info.newest_schema, schedulers, workers),
    )


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter()
    routes.include_router(_cluster_routes(services, prefix))
    routes.include_router(_alert_routes(services, prefix))
    return routes


def _cluster_routes(services: ApiServices, prefix: str) -> APIRouter:
    routes = APIRouter(tags=["cluster"], prefix=prefix)

    @routes.get("/participants")
    def participants(paging: Paging) -> m.ParticipantsModel:
        """Every scheduler: registration, place in the queue, role, epoch, readiness, and missing files."""
        health = services.health
        model = views.participants_model(health.participants(), services.reader.schedulers(), health.leader())
        page = paging.page(model.participants, views.place_in_queue)
        return m.ParticipantsModel(leader=model.leader, participants=page.rows, **page.rest)

    @routes.get("/leader")
    def leader() -> m.LeaderAnswer:
        """The leader; null while there is none."""
        view = services.health.leader()
        return m.LeaderAnswer(leader=views.leader_model(view, services.reader.schedulers()))

    @routes.get("/status")
    def status() -> m.StatusModel:
        """The cluster at a glance."""
        return cluster_status(services, services.reader.schedulers())

    @routes.get("/workers")
    def workers(paging: Paging) -> m.WorkersModel:
        """Registered workers, with their open attempts and refusals."""
        known = known_workers(services, services.reader.schedulers())
        page = paging.page(known, lambda worker: (worker.id,))
        return m.WorkersModel(workers=page.rows, **page.rest)

    @routes.get("/workers/wanted")
    def wanted() -> WantedModel:
        """Slots that ready tasks lack now, by label and target, and for how long: for autoscalers."""
        return wanted_slots(services)

    @routes.post("/cluster/abdicate", **ACCEPTED)
    async def abdicate(body: AbdicationBody, submit: Submit) -> m.CommandModel:
        """Ask the leader to hand over to a named scheduler or to the next one. It then queues again."""
        return await submit(Abdicate(reason=body.reason, to=body.to))

    @routes.get("/settings")
    def settings() -> SettingsModel:
        """The settings of the answering scheduler, with their origins. Secrets are masked."""
        return effective_settings(services)

    return routes
