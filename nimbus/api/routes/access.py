"""Routes about tokens, owners and grants, and about the caller itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from nimbus.access.oidc import LONGEST_NAME, NAME_PREFIX
from nimbus.access.tokens import TOKEN_ID
from nimbus.api.caller import grants, principal
from nimbus.api.models import CommandModel, Model, of
from nimbus.api.problems import ObjectNotFoundError, form
from nimbus.api.requests import Moment, PipelineNameText, RequestBody
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.seen import lookups
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, CONDITIONAL, Submit, tag_with
from nimbus.domain.cluster.access import (
    AccessDeniedError,
    AccessGrant,
    AccessRole,
    Principal,
    PrincipalSource,
    Thing,
    grant_on,
)
from nimbus.domain.cluster.revisions import of_token
from nimbus.domain.commands import CreateToken, GrantAccess, RevokeAccess, RevokeToken, SetOwner
from nimbus.domain.ids import NAME_PATTERN, VARIABLE_PATTERN, DatasetName, PipelineName

NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$"
_TokenId = Annotated[str, StringConstraints(pattern=rf"^{TOKEN_ID}$")]
# Names at an identity provider may have characters that names of tokens do not have, such as `:` and `|`.
_OWNER = rf"{NAME}|^{NAME_PREFIX}[^\x00-\x20\x7f-\xa0](?:[^\x00-\x1f\x7f-\x9f]{{0,{LONGEST_NAME - 1}}})$"
_NAMED = "a name: 1 to 100 letters, digits, and . _ @ + -, starting with a letter or digit"
_Name = Annotated[str, form(NAME, _NAMED)]
OwnerText = Annotated[str, form(_OWNER, f"{_NAMED}; or {NAME_PREFIX}NAME")]


class TokenBody(RequestBody):
    """A token, without its secret, which stays with the caller."""

    name: _Name = Field(description="Name of the holder, as shown in the list of commands.")
    role: AccessRole
    teams: list[_Name] = Field(default_factory=list, max_length=20)
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the secret, the part after `nbs_<id>_`: 43 characters, from 32 random bytes."
    )
    expires_at: Moment | None = None


class OwnerBody(RequestBody):
    """The owner of a pipeline."""

    owner: OwnerText | None = Field(
        description="A principal, such as `ada` or `oidc:ada`, or a team; null: admins alone."
    )


@of(AccessGrant)
class GrantModel(Model):
    """A role on something, for a principal or a team."""


class TokenModel(Model):
    """A token, without its secret."""

    id: str
    name: str
    role: AccessRole
    teams: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    in_file: bool = False
    """It is in the file `api.tokens_file` of the scheduler that answers, so it is revoked there."""


class TokensModel(Model):
    """The tokens of the cluster, and those in the file of the scheduler that answers."""

    tokens: list[TokenModel]


class PrincipalModel(Model):
    """The caller, as this scheduler authenticated it."""

    name: str
    role: AccessRole
    teams: list[str]
    source: PrincipalSource
    token_id: str
    address: str
    grants: list[GrantModel] = Field(default_factory=list)
    """Its own, and those of its teams."""


def list_tokens(services: ApiServices) -> TokensModel:
    """The tokens of the cluster and of this scheduler's file, by name."""
    of_cluster, in_file = services.reader.settings().tokens.values(), services.gate.in_file.values()
    rows = [TokenModel.model_validate(token) for token in of_cluster]
    rows += [TokenModel.from_records(token, in_file=True) for token in in_file]
    return TokensModel(tokens=sorted(rows, key=lambda row: (row.name, row.id)))


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["access"], prefix=prefix)

    @routes.get("/whoami")
    async def whoami() -> PrincipalModel:
        """The caller, its role, and its grants."""
        return PrincipalModel.from_records(principal(), grants=grants())

    @routes.get("/tokens")
    def tokens() -> TokensModel:
        """The tokens of the cluster and of the answering scheduler's file, by name."""
        return list_tokens(services)

    @routes.get("/tokens/{token_id}")
    def token(token_id: _TokenId, response: Response) -> TokenModel:
        """One token of the cluster."""
        token = services.reader.settings().tokens.get(token_id)
        if token is None:
            raise ObjectNotFoundError(
                "unknown_token", f"there is no token {token_id}: see `nimbus token list`."
            )
        tag_with(response, of_token(token))
        return TokenModel.model_validate(token)

    @routes.put("/tokens/{token_id}", **CONDITIONAL)
    async def create_token(token_id: _TokenId, body: TokenBody, submit: Submit) -> CommandModel:
        """Create a token. A repeated request with the same secret changes nothing."""
        command = CreateToken(
            id=token_id,
            name=body.name,
            role=body.role,
            teams=tuple(body.teams),
            sha256=body.sha256,
            expires_at=body.expires_at,
        )
        return await submit(command)

    @routes.delete("/tokens/{token_id}", **CONDITIONAL)
    async def revoke_token(token_id: _TokenId, submit: Submit) -> CommandModel:
        """Revoke a token."""
        return await submit(RevokeToken(id=token_id))

    @routes.put("/pipelines/{name}/owner", **CONDITIONAL)
    async def set_owner(name: PipelineNameText, body: OwnerBody, submit: Submit) -> CommandModel:
        """Set the owner of a pipeline, who may publish and remove it."""
        return await submit(lambda: SetOwner(pipeline=known_pipeline(services, name).name, owner=body.owner))

    _add_grants(routes, services)
    return routes


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
    highest, why = max(said, key=lambda role_and_why: role_and_why[0].rank, default=nothing)
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


def _add_grants(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/grants")
    def list_grants(who: OwnerText | None = None) -> GrantsModel:
        """All grants; for all but admins, only their own. `who`: those of this principal or team."""
        known = services.reader.settings().grants if principal().role is AccessRole.ADMIN else grants()
        models = [GrantModel.model_validate(grant) for grant in known if who in (None, grant.who)]
        return GrantsModel(grants=models)

    @routes.get("/grants/may")
    def may(who: OwnerText, role: AccessRole, on: _On) -> MayModel:
        """Whether a principal or team has a role on something, and why. Admins may ask about others."""
        return _may(services, who, role, on)

    @routes.post("/grants", **ACCEPTED)
    async def grant(body: GrantBody, submit: Submit) -> CommandModel:
        """Give a role on something. Another role of the same principal on the same thing is replaced."""
        return await submit(GrantAccess(who=body.who, role=body.role, on=body.on, reason=body.reason))

    @routes.post("/grants/revoke", **ACCEPTED)
    async def revoke(body: RevokeBody, submit: Submit) -> CommandModel:
        """Take a grant away."""
        return await submit(RevokeAccess(who=body.who, on=body.on, reason=body.reason))
