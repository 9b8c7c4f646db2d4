"""Routes about schedulers and their settings, workers, leadership and commands."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from nimbus.api import models as m
from nimbus.api import views
from nimbus.api.paging import Key, Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import AbdicationBody, CommandIdText
from nimbus.api.routes_terms import succession
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit, Wait, await_outcome, command_model
from nimbus.domain.commands import Abdicate, CommandOutcome
from nimbus.domain.ids import CommandId


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
    rows = [
        SettingModel(key=one.key, value=one.value, origin=one.origin, default=one.is_default)
        for one in services.settings
    ]
    return SettingsModel(answered_by=services.health.info().id, settings=rows)


def known_command(services: ApiServices, command: CommandId) -> CommandOutcome | None:
    """The outcome of a command; None while it waits.

    Raises:
        NotFoundError: the command neither waits nor has an outcome.
    """
    outcome = services.commands.outcome(command)
    if outcome is None and command not in {queued.id for queued in services.reader.commands()}:
        outcome = services.commands.outcome(command)  # decided between the two reads
        if outcome is None:
            raise NotFoundError(
                "unknown_command",
                f"command {command} is not waiting and has no outcome: it was never submitted, or was "
                "decided more than an hour ago. Check the object that it was to change.",
            )
    return outcome


def known_workers(services: ApiServices) -> list[m.WorkerModel]:
    """Registered workers, by id."""
    reader = services.reader
    found, refused = reader.workers(), views.refusals(reader.schedulers())
    orders = reader.orders(worker.id for worker in found)
    return views.worker_models(found, orders, refused, reader.settings().cordoned)


def wanted_slots(services: ApiServices) -> m.WantedModel:
    """What the leader has reported last."""
    leader = max(services.reader.schedulers(), key=lambda one: one.epoch or 0, default=None)
    if leader is None or leader.report.wanted is None:
        return m.WantedModel(reported_at=None, wanted=[])
    now = services.clock.now()
    rows = [
        m.WantedSlotsModel(
            labels=list(one.labels),
            target=one.target or None,
            slots=one.slots,
            since=one.since,
            waited_s=max(0.0, (now - one.since).total_seconds()),
        )
        for one in leader.report.wanted
    ]
    return m.WantedModel(reported_at=leader.reported_at, wanted=rows)


def cluster_status(services: ApiServices) -> m.StatusModel:
    """The counts of the cluster."""
    reader = services.reader
    workers = reader.workers()
    return views.status_model(
        succession=succession(services).said,
        leader=services.health.leader(),
        info=services.health.info(),
        schema=services.health.schema(),
        schedulers=reader.schedulers(),
        workers=workers,
        busy=views.busy_slots(reader.orders(worker.id for worker in workers), workers),
        pipelines=reader.pipelines(),
        runs=reader.run_list().values(),
        max_running=services.max_running,
        commands=reader.commands(),
    )


def _in_queue(row: m.ParticipantModel) -> Key:
    """Sort key: the queue in its order, then schedulers that are not in it."""
    return (row.queue_position is None, row.queue_position or 0, row.id)


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["cluster"], prefix=prefix)

    @routes.get("/participants")
    def participants(paging: Paging) -> m.ParticipantsModel:
        """Every scheduler: registration, place in the queue, role, epoch, readiness, and missing files."""
        health = services.health
        found = views.participants_model(health.participants(), services.reader.schedulers(), health.leader())
        page = paging.page(found.participants, _in_queue)
        return m.ParticipantsModel(
            leader=found.leader,
            participants=page.rows,
            next_cursor=page.next_cursor,
            at_least=page.at_least,
        )

    @routes.get("/leader")
    def leader() -> m.LeaderAnswer:
        """The leader; null while there is none."""
        view = services.health.leader()
        return m.LeaderAnswer(leader=views.leader_model(view, services.reader.schedulers()))

    @routes.get("/status")
    def status() -> m.StatusModel:
        """The cluster at a glance."""
        return cluster_status(services)

    @routes.get("/workers")
    def workers(paging: Paging) -> m.WorkersModel:
        """Registered workers, with their open attempts and refusals."""
        page = paging.page(known_workers(services), lambda one: (one.id,))
        return m.WorkersModel(workers=page.rows, next_cursor=page.next_cursor, at_least=page.at_least)

    @routes.get("/workers/wanted")
    def wanted() -> m.WantedModel:
        """Slots that ready tasks lack now, by label and target, and for how long: for autoscalers."""
        return wanted_slots(services)

    @routes.get("/commands/{command_id}")
    async def command(command_id: CommandIdText, wait: Wait = 0) -> m.CommandModel:
        """The state of a command. Outcomes are kept for about an hour."""
        wanted = CommandId(command_id)
        outcome = await run_in_threadpool(known_command, services, wanted)
        if outcome is None and wait > 0:
            outcome = await await_outcome(services.commands, wanted, wait)
        return command_model(wanted, outcome)

    @routes.post("/cluster/abdicate", status_code=202, responses=ACCEPTED_RESPONSES)
    async def abdicate(body: AbdicationBody, submit: Submit) -> m.CommandModel:
        """Ask the leader to hand over to a named scheduler or to the next one. It then queues again."""
        return await submit(Abdicate(reason=body.reason, to=body.to))

    @routes.get("/settings")
    def settings() -> SettingsModel:
        """The settings of the answering scheduler, with their origins. Secrets are masked."""
        return effective_settings(services)

    return routes
