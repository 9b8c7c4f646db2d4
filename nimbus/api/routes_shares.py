"""Routes about several teams on one cluster: shares of teams, and holds of starts."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter

from nimbus.api.explain.facts import team_uses
from nimbus.api.models import CommandModel, HoldModel, HoldsModel, ShareModel, SharesModel
from nimbus.api.requests import HoldBody, PipelineNameText, ShareBody
from nimbus.api.routes_access import OwnerText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit
from nimbus.domain.commands import SetHold, SetShare
from nimbus.domain.schedulers import TeamUse
from nimbus.domain.settings import Hold


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["limits"], prefix=prefix)

    @routes.get("/shares")
    def shares() -> SharesModel:
        """Shares of teams: their weights, what they have, and what they get if all want more."""
        return known_shares(services)

    @routes.put("/shares/{team}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def set_share(team: OwnerText, body: ShareBody, submit: Submit) -> CommandModel:
        """Set the weight of a team's share. Nothing that runs is stopped: what ends is given to others."""
        return await submit(SetShare(team=team, weight=body.weight, reason=body.reason))

    @routes.get("/holds")
    def holds() -> HoldsModel:
        """Holds: starts that wait, with who, when, why and until when."""
        found, pipelines = services.reader.settings().holds, services.reader.pipelines()
        rows = [
            HoldModel(
                hold=name,
                of=hold.of,
                name=hold.name,
                pipelines=sum(hold.covers(record) for record in pipelines),
                reason=hold.reason,
                until=hold.until,
                held_by=hold.held_by,
                held_at=hold.held_at,
                words=hold.words(name),
            )
            for name, hold in sorted(found.items())
        ]
        return HoldsModel(holds=rows)

    @routes.put("/holds/{hold}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def set_hold(hold: PipelineNameText, body: HoldBody, submit: Submit) -> CommandModel:
        """Hold starts, or change a hold. What runs goes on; runs that are asked for are queued."""
        held = Hold(
            of=body.of,
            name=body.name,
            reason=body.reason,
            until=body.until,
            alert_after=timedelta(seconds=body.alert_after_s),
            held_at=services.clock.now(),
        )
        return await submit(SetHold(name=hold, hold=held))

    @routes.delete("/holds/{hold}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def end_hold(hold: PipelineNameText, submit: Submit) -> CommandModel:
        """End a hold. What came due is dealt with as the catch-up of each pipeline says."""
        return await submit(SetHold(name=hold, hold=None))

    return routes


def known_shares(services: ApiServices) -> SharesModel:
    """All teams that have a weight, or that have or want something."""
    settings, (slots, used) = services.reader.settings(), team_uses(services)
    rows = []
    for team in sorted({*settings.shares, *used}):
        use, share = used.get(team, TeamUse()), settings.shares.get(team)
        rows.append(
            ShareModel(
                team=team,
                weight=settings.weight_of(team),
                slots=use.slots,
                share=round(settings.share_of(team, slots, used), 1),
                runs=use.runs,
                waiting=use.waiting,
                reason="" if share is None else share.reason,
                set_by="" if share is None else share.set_by,
                set_at=None if share is None else share.set_at,
            )
        )
    return SharesModel(slots=slots, shares=rows)
