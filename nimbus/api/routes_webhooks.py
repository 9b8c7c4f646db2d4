"""`POST /hooks/{pipeline}`: a signed request from another system starts a run."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response

from nimbus.api.asking import ask_as_webhook
from nimbus.api.conditions import note_if_match
from nimbus.api.finding import refuse_used_id
from nimbus.api.hook_secrets import HookSecrets
from nimbus.api.models import CommandModel
from nimbus.api.requests import PipelineNameText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Wait, submit
from nimbus.domain.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.commands import StartRun
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName
from nimbus.domain.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.webhooks import (
    WRONG_SIGNATURE,
    Signed,
    UnsignedRequestError,
    check_form,
    check_request,
    parameters_from,
    run_of,
)

_Text = Annotated[str, Header(max_length=200)]


def router(services: ApiServices) -> APIRouter:
    """Build the route over `services`."""
    routes = APIRouter(tags=["webhooks"], prefix="/hooks", dependencies=[Depends(note_if_match)])
    secrets = None if services.hook_secret is None else HookSecrets(services.hook_secret)

    @routes.post("/{pipeline}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def start(
        pipeline: PipelineNameText,
        request: Request,
        response: Response,
        x_nimbus_timestamp: _Text = "",
        x_nimbus_delivery: _Text = "",
        x_nimbus_signature: _Text = "",
        wait: Wait = 0,
    ) -> CommandModel:
        """Start a run of a pipeline that has a `webhook`. A repeated delivery starts nothing."""
        signed = Signed(x_nimbus_timestamp, x_nimbus_delivery, x_nimbus_signature)
        check_form(signed)
        body = await request.body()
        ask_as_webhook(request.client.host if request.client else "")

        def made() -> StartRun:
            return _start(services, secrets, pipeline, signed, body)

        return await submit(services, made, response, wait_s=wait)

    return routes


def _start(
    services: ApiServices, secrets: HookSecrets | None, name: str, signed: Signed, body: bytes
) -> StartRun:
    if secrets is None:
        raise RefusedError("no_secrets", "this scheduler has no secrets: see `worker.secrets`.")
    record = services.reader.pipeline(PipelineName(name))
    spec = _active_definition(services, record)
    if record is None or spec is None or spec.webhook is None:
        raise UnsignedRequestError(WRONG_SIGNATURE)  # do not reveal which pipelines have a webhook
    check_request(secrets(spec.webhook.secret), signed, body, services.clock.now())
    if record.state is not PipelineState.ACTIVE:
        raise RefusedError("not_active", f"pipeline {name} is {record.state}: its webhook starts nothing.")
    parameters = parameters_from(spec.webhook, _parsed(body))
    try:
        resolve_parameters(spec, parameters)
    except InvalidParametersError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    run_id = run_of(record.name, signed.delivery)
    refuse_used_id(services, run_id)
    return StartRun(pipeline=record.name, run_id=run_id, parameters=parameters)


def _active_definition(services: ApiServices, record: PipelineRecord | None) -> PipelineSpec | None:
    if record is None or record.release is None:
        return None
    return services.definitions.definition(ReleaseOf(record.name, record.release))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else {}
    except (ValueError, RecursionError) as exc:
        raise RefusedError("bad_body", "the body is no JSON document.") from exc
