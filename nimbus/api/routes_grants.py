"""Routes about grants: roles on single pipelines, datasets, variables, prefixes of names, and teams."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from nimbus.api.asking import grants, principal
from nimbus.api.models import CommandModel, Model
from nimbus.api.problems import form
from nimbus.api.requests import RequestBody
from nimbus.api.routes_access import GrantModel, OwnerText
from nimbus.api.seen import lookups
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit
from nimbus.domain.access import AccessDeniedError, AccessRole, Principal, PrincipalSource, Thing, grant_on
from nimbus.domain.commands import GrantAccess, RevokeAccess
from nimbus.domain.ids import NAME_PATTERN, VARIABLE_PATTERN, DatasetName, PipelineName

_ON = "`pipeline:NAME`, `dataset:NAME`, `variable:NAME`, `team:OWNER`, or a prefix such as `finance_*`."
_On = Annotated[
    str,
    form(
        rf"^(?:(?:pipeline|dataset):{NAME_PATTERN.pattern}|variable:{VARIABLE_PATTERN.pattern}"
        r"|team:[^\x00-\x20\x7f-\xa0*]{1,205}|[A-Za-z][A-Za-z0-9_-]{0,62}\*)$",
        _ON.rstrip("."),
    ),
]


class GrantBody(RequestBody):
    """A role on something, for a principal or a team."""

    who: OwnerText = Field(description="A principal, such as `ada` or `oidc:ada`, or a team.")
    role: AccessRole = Field(description="`status`, `logs`, `viewer`, `operator` or `author`.")
    on: _On = Field(description=_ON)
    reason: Annotated[str, StringConstraints(min_length=1, max_length=200)]


class RevokeBody(RequestBody):
    """A grant to take away."""

    who: OwnerText
    on: _On = Field(description=_ON)
    reason: Annotated[str, StringConstraints(max_length=200)] = ""


class GrantsModel(Model):
    """Grants, by whom and on what."""

    grants: list[GrantModel]


class MayModel(Model):
    """Whether a principal may do something, and by which rule."""

    who: str
    role: AccessRole
    on: str
    allowed: bool
    why: str


def _may(services: ApiServices, who: str, role: AccessRole, on: str) -> MayModel:
    asks, settings = principal(), services.reader.settings()
    is_admin = asks.role is AccessRole.ADMIN
    if not is_admin and not asks.owns(who):
        raise AccessDeniedError("role_too_low", f"only admins may ask about {who}, and {asks.name} is none.")
    thing, asked = _thing(services, on), settings.grants if is_admin else grants()
    tokens = [token for token in settings.tokens.values() if token.name == who]
    said = [(token.role, f"the role {token.role} of token {token.id}") for token in tokens]
    teams = {team for token in tokens for team in token.teams}
    if who == asks.name:
        said.append((asks.role, f"the role {asks.role} of {who}"))
        teams |= {*asks.teams}
    of = Principal(name=who, role=AccessRole.NONE, teams=tuple(teams), source=PrincipalSource.TOKEN)
    if (grant := grant_on(of, thing, asked)) is not None:
        said.append((grant.role, f"the {grant}, by {grant.by}: {grant.reason}"))
    nothing = (AccessRole.NONE, "no token of this name, and no grant")
    highest, why = max(said, key=lambda one: one[0].rank, default=nothing)
    allowed = highest.includes(role)
    if not allowed:
        why = f"the highest is {highest}, by {why}: `nimbus access grant {who} {role} {on} --reason WHY`"
    return MayModel(who=who, role=role, on=on, allowed=allowed, why=why)


def _thing(services: ApiServices, on: str) -> Thing:
    """What a grant would be on. A team or prefix: something new of it."""
    kind, _, name = on.partition(":")
    find = lookups(services)
    if kind == "pipeline":
        return find.of_pipeline(PipelineName(name))
    if kind == "dataset":
        return find.of_dataset(DatasetName(name))
    if kind == "variable":
        return Thing("variable", name)
    return Thing("pipeline", "", name) if kind == "team" else Thing("pipeline", on[:-1])


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["access"], prefix=f"{prefix}/grants")

    @routes.get("")
    def list_grants(who: OwnerText | None = None) -> GrantsModel:
        """All grants; for all but admins, only their own. `who`: those of this principal or team."""
        known = services.reader.settings().grants if principal().role is AccessRole.ADMIN else grants()
        found = [GrantModel.model_validate(grant) for grant in known if who in (None, grant.who)]
        return GrantsModel(grants=found)

    @routes.get("/may")
    def may(who: OwnerText, role: AccessRole, on: _On) -> MayModel:
        """Whether a principal or team has a role on something, and why. Admins may ask about others."""
        return _may(services, who, role, on)

    @routes.post("", status_code=202, responses=ACCEPTED_RESPONSES)
    async def grant(body: GrantBody, submit: Submit) -> CommandModel:
        """Give a role on something. Another role of the same principal on the same thing is replaced."""
        return await submit(GrantAccess(who=body.who, role=body.role, on=body.on, reason=body.reason))

    @routes.post("/revoke", status_code=202, responses=ACCEPTED_RESPONSES)
    async def revoke(body: RevokeBody, submit: Submit) -> CommandModel:
        """Take a grant away."""
        return await submit(RevokeAccess(who=body.who, on=body.on, reason=body.reason))

    return routes
