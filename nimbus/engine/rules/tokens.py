"""Commands that create or revoke tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.domain.access import MOST_TOKENS, Token
from nimbus.domain.commands import RevokeToken, TokenCommand
from nimbus.domain.errors import RefusedError
from nimbus.domain.settings import ClusterSettings


def changed_tokens(
    before: ClusterSettings, command: TokenCommand, asked_by: str, now: datetime
) -> tuple[ClusterSettings, str]:
    """The settings with one token added or removed. A new token also removes expired ones.

    Raises:
        RefusedError: there is no such token, there are too many, or another one has this id.
    """
    if isinstance(command, RevokeToken):
        if command.id not in before.tokens:
            raise RefusedError("unknown_token", f"there is no token {command.id}: see `nimbus token list`.")
        rest = {token_id: token for token_id, token in before.tokens.items() if token_id != command.id}
        return replace(before, tokens=rest), f"token {command.id} is revoked"
    same = before.tokens.get(command.id)
    if same is not None:
        if same.sha256 != command.sha256:
            raise RefusedError("token_exists", f"there is another token {command.id}.")
        return before, f"token {command.id} was made before"
    useful = {token_id: token for token_id, token in before.tokens.items() if not token.is_expired(now)}
    if len(useful) >= MOST_TOKENS:
        raise RefusedError("too_many_tokens", f"there are {MOST_TOKENS} tokens: revoke some.")
    token = Token(
        id=command.id,
        name=command.name,
        role=command.role,
        teams=command.teams,
        sha256=command.sha256,
        created_at=now,
        created_by=asked_by,
        expires_at=command.expires_at,
    )
    said = f"token {command.id} of {command.name} may do what {command.role} may"
    return replace(before, tokens={**useful, command.id: token}), said
