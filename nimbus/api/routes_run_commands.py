"""Routes of commands about runs that were started."""

from __future__ import annotations

from fastapi import APIRouter, Response

from nimbus.api.finding import find_run
from nimbus.api.models import CommandModel
from nimbus.api.requests import ReasonBody, RunIdText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Wait, submit
from nimbus.domain.commands import PauseRun, ResumeRun, StopRun
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.post("/{run_id}/stop", status_code=202, responses=ACCEPTED_RESPONSES)
    async def stop(run_id: RunIdText, body: ReasonBody, response: Response, wait: Wait = 0) -> CommandModel:
        """End a run: nothing new starts, what runs is stopped."""

        def made() -> StopRun:
            return StopRun(run_id=_live(services, run_id, "stop"), reason=body.reason)

        return await submit(services, made, response, wait_s=wait)

    @routes.post("/{run_id}/pause", status_code=202, responses=ACCEPTED_RESPONSES)
    async def pause(run_id: RunIdText, response: Response, wait: Wait = 0) -> CommandModel:
        """Let a run begin nothing new; what runs goes on, and its deadline counts."""

        def made() -> PauseRun:
            return PauseRun(run_id=_live(services, run_id, "pause"))

        return await submit(services, made, response, wait_s=wait)

    @routes.post("/{run_id}/resume", status_code=202, responses=ACCEPTED_RESPONSES)
    async def resume(run_id: RunIdText, response: Response, wait: Wait = 0) -> CommandModel:
        """Let a paused run go on."""

        def made() -> ResumeRun:
            return ResumeRun(run_id=_live(services, run_id, "resume"))

        return await submit(services, made, response, wait_s=wait)

    return routes


def _live(services: ApiServices, run_id: str, verb: str) -> RunId:
    """The id of a run that is not final. RefusedError: it is."""
    run = find_run(services, run_id)
    if run.state.is_final:
        raise RefusedError("run_finished", f"run {run_id} has {run.state} already: nothing to {verb}.")
    return run.id
