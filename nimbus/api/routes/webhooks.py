"""`POST /hooks/{pipeline}`: a signed request from another system starts a run, or publishes data.

A request can be authenticated only with its secret. So before that, an unknown client must not be able to
start a program of the provider with each request, or see the provider's errors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from threading import Lock
from typing import Annotated, Any, NamedTuple

import structlog
from fastapi import APIRouter, Depends, Header, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from nimbus.api.caller import set_webhook_caller
from nimbus.api.models import CommandModel
from nimbus.api.requests import DatasetNameText, NewVersionBody, PipelineNameText
from nimbus.api.routes.datasets import published
from nimbus.api.runs.lookup import refuse_used_id
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, Submit, note_delivery, note_if_match
from nimbus.domain.commands import PublishDataset, StartRun
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.pipelines.webhooks import (
    WRONG_SIGNATURE,
    Signed,
    UnsignedRequestError,
    Webhook,
    check_form,
    check_request,
    parameters_from,
    run_of,
)

KEPT_S = 10.0
"""Also for a missing secret. A replaced secret is valid for this long."""
LONGEST_WAIT_S = 2.0
"""Longest wait for another request that reads from the provider."""

_log = structlog.get_logger(__name__)


class HookSecretError(NimbusError):
    """The secret of a webhook is not available now. The message has no details of the provider."""

    code = "secret_unavailable"
    retryable = True


class HookSecrets:
    """The secrets of webhooks by name. Each is read from its provider at most once in KEPT_S; any thread."""

    def __init__(self, find: Callable[[str], str], elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._elapsed_s = elapsed_s
        self._asking = Lock()
        self._kept: dict[str, tuple[float, str | None]] = {}
        """Expiry and secret by name; None: the secret is not available."""

    def __call__(self, name: str) -> str:
        """The secret of a name. Raises HookSecretError if it is not available."""
        if not self._asking.acquire(timeout=LONGEST_WAIT_S):
            raise HookSecretError("the secret of this webhook is being read: send the request again")
        try:
            now_s = self._elapsed_s()
            self._kept = {known: kept for known, kept in self._kept.items() if kept[0] > now_s}
            if name not in self._kept:
                answer = self._ask(name)
                self._kept[name] = (self._elapsed_s() + KEPT_S, answer)
            secret = self._kept[name][1]
        finally:
            self._asking.release()
        if secret is None:
            raise HookSecretError("the secret of this webhook cannot be had: the scheduler's log says why")
        return secret

    def _ask(self, name: str) -> str | None:
        try:
            return self._find(name)
        except NimbusError as exc:
            _log.warning("hook_secret_unavailable", secret=name, error=str(exc))
            return None


_Text = Annotated[str, Header(max_length=200)]


class _Delivery(NamedTuple):
    """A request whose signature has the right form."""

    signed: Signed
    body: bytes


async def _delivered(
    request: Request,
    x_nimbus_timestamp: _Text = "",
    x_nimbus_delivery: _Text = "",
    x_nimbus_signature: _Text = "",
) -> _Delivery:
    signed = Signed(x_nimbus_timestamp, x_nimbus_delivery, x_nimbus_signature)
    check_form(signed)
    body = await request.body()
    set_webhook_caller(request.client.host if request.client else "")
    return _Delivery(signed, body)


_Sent = Annotated[_Delivery, Depends(_delivered)]


def router(services: ApiServices) -> APIRouter:
    """Build the route over `services`."""
    routes = APIRouter(tags=["webhooks"], prefix="/hooks", dependencies=[Depends(note_if_match)])
    secrets = None if services.hook_secret is None else HookSecrets(services.hook_secret)

    @routes.post("/{pipeline}", **ACCEPTED)
    async def start(pipeline: PipelineNameText, sent: _Sent, submit: Submit) -> CommandModel:
        """Start a run of a pipeline that has a `webhook`. A repeated delivery starts nothing."""
        return await submit(lambda: _start(services, secrets, pipeline, sent))

    @routes.post("/{pipeline}/datasets/{dataset}", **ACCEPTED)
    async def publish(
        pipeline: PipelineNameText,
        dataset: DatasetNameText,
        sent: _Sent,
        submit: Submit,
    ) -> CommandModel:
        """Publish a version of a dataset that a pipeline with a `webhook` takes from outside."""
        target = f"{pipeline}/datasets/{dataset}"
        await run_in_threadpool(_checked, services, secrets, pipeline, target, sent)
        note_delivery(f"/hooks/{target} {sent.signed.delivery}", sent.body)
        return await submit(lambda: _published(services, pipeline, dataset, sent.body))

    return routes


def _checked(
    services: ApiServices, secrets: HookSecrets | None, name: str, target: str, sent: _Delivery
) -> tuple[PipelineRecord, PipelineSpec, Webhook]:
    """A pipeline whose webhook has signed a request to a target. UnsignedRequestError, HookSecretError."""
    if secrets is None:
        raise RefusedError("no_secrets", "this scheduler has no secrets: see `worker.secrets`.")
    record = services.reader.pipeline(PipelineName(name))
    spec = _active_definition(services, record)
    if record is None or spec is None or spec.webhook is None:
        raise UnsignedRequestError(WRONG_SIGNATURE)  # do not reveal which pipelines have a webhook
    check_request(secrets(spec.webhook.secret), target, *sent, services.clock.now())
    return record, spec, spec.webhook


def _published(
    services: ApiServices, pipeline: PipelineName, dataset: DatasetName, body: bytes
) -> PublishDataset:
    record = services.reader.pipeline(pipeline)
    if record is None or dataset not in record.profile.datasets:
        raise RefusedError("not_from_outside", f"pipeline {pipeline} has no dataset {dataset}.")
    try:
        return published(dataset, NewVersionBody.model_validate(_parsed(body)))
    except ValidationError as exc:
        raise RefusedError("bad_body", f"the body is no version: {exc.errors()[0]['msg']}") from exc


def _start(services: ApiServices, secrets: HookSecrets | None, name: str, sent: _Delivery) -> StartRun:
    record, spec, webhook = _checked(services, secrets, name, name, sent)
    if record.state is not PipelineState.ACTIVE:
        raise RefusedError("not_active", f"pipeline {name} is {record.state}: its webhook starts nothing.")
    parameters = parameters_from(webhook, _parsed(sent.body))
    try:
        resolve_parameters(spec, parameters)
    except InvalidParametersError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    run_id = run_of(record.name, sent.signed.delivery)
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
