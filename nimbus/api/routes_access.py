"""Routes about tokens and owners, and about the caller itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from nimbus.access.oidc import LONGEST_NAME, NAME_PREFIX
from nimbus.access.tokens import TOKEN_ID
from nimbus.api.asking import grants, principal
from nimbus.api.entity_tags import tag_with
from nimbus.api.models import CommandModel, Model, of
from nimbus.api.problems import NotFoundError, form
from nimbus.api.requests import Moment, PipelineNameText, RequestBody
from nimbus.api.routes_pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.api.submitting import CONDITIONAL, Submit
from nimbus.domain.access import AccessGrant, AccessRole, PrincipalSource
from nimbus.domain.commands import CreateToken, RevokeToken, SetOwner
from nimbus.domain.revisions import of_token

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
    of_cluster = [TokenModel.model_validate(token) for token in services.reader.settings().tokens.values()]
    in_file = [TokenModel.model_validate(token) for token in services.gate.in_file.values()]
    rows = [*of_cluster, *(token.model_copy(update={"in_file": True}) for token in in_file)]
    return TokensModel(tokens=sorted(rows, key=lambda row: (row.name, row.id)))


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["access"], prefix=prefix)

    @routes.get("/whoami")
    async def whoami() -> PrincipalModel:
        """The caller, its role, and its grants."""
        mine = [GrantModel.model_validate(grant) for grant in grants()]
        return PrincipalModel.model_validate(principal()).model_copy(update={"grants": mine})

    @routes.get("/tokens")
    def tokens() -> TokensModel:
        """The tokens of the cluster and of the answering scheduler's file, by name."""
        return list_tokens(services)

    @routes.get("/tokens/{token_id}")
    def token(token_id: _TokenId, response: Response) -> TokenModel:
        """One token of the cluster."""
        found = services.reader.settings().tokens.get(token_id)
        if found is None:
            raise NotFoundError("unknown_token", f"there is no token {token_id}: see `nimbus token list`.")
        tag_with(response, of_token(found))
        return TokenModel.model_validate(found)

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

    return routes
