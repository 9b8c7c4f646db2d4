"""Verifies tokens of an identity provider (OpenID Connect), with keys that were fetched before. No I/O.

Also the roles of the provider's groups, for the scheduler that gets a request, and for the leader. PyJWT is
imported late: it comes with the extra `oidc`, which only schedulers with a provider need.

Source: RFC 7519 (JWT), RFC 8725 (best current practices), OpenID Connect Core 1.0, section 3.1.3.7.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Principal, PrincipalSource


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRole:
    """Role and teams of the members of a group."""

    role: AccessRole
    teams: tuple[str, ...] = ()
    """Members own the pipelines of these teams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The grants of all groups, from the configuration."""

    issuer: str
    """The identity provider of the groups. Groups of another provider with equal names have no grant."""
    by_group: Mapping[str, GroupRole] = field(default_factory=dict)
    default_role: AccessRole | None = None
    """Role of people in none of these groups; None: they are refused."""

    def known(self, groups: Collection[str]) -> tuple[str, ...]:
        """Those of the groups that have a grant, in the order of the configuration."""
        return tuple(group for group in self.by_group if group in groups)

    def of(self, name: str, issuer: str, groups: Collection[str]) -> GroupRole:
        """The grant of a person: the highest role of the groups, and the teams of all of them.

        Raises AccessDeniedError: none of the groups has a role, and there is no default role.
        """
        grants = [self.by_group[group] for group in self.known(groups)] if issuer == self.issuer else []
        if grants:
            highest = max((grant.role for grant in grants), key=list(AccessRole).index)
            teams = (team for grant in grants for team in grant.teams)
            return GroupRole(role=highest, teams=tuple(dict.fromkeys(teams)))
        if issuer == self.issuer and self.default_role is not None:
            return GroupRole(role=self.default_role)
        raise AccessDeniedError(
            "no_role",
            f"the identity provider knows {name}, and none of their groups has a role here: `oidc.groups` in "
            "the configuration gives roles to groups.",
        )


LEEWAY_S = 30.0
"""How much the clocks of the provider and of this host may differ."""
LONGEST_TOKEN = 16 * 1024
MAX_KEYS = 100
NAME_PREFIX = "oidc:"
"""Prefix of principals' names. No Nimbus token and no team can have such a name."""
LONGEST_NAME = 200
"""Limit in characters, without the prefix."""
_LAST_SECOND = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp())
_KEY_TYPES = frozenset({"RSA", "EC", "OKP"})
"""Never `oct`, which is a symmetric key: a published secret is no secret."""
_TOKEN_TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
"""Allowed values of the header `typ`, in lower case. Other messages, such as `logout+jwt`, are refused."""

Claims = Mapping[str, Any]


class JwtRefusedError(Exception):
    """A signed token is refused. `code`: that of the refusal with status 401."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRules:
    """Requirements on the provider's tokens, and the claims that are read."""

    issuer: str
    audience: str
    """Audience of tokens in requests."""
    client_id: str | None
    """Audience of ID tokens of browser logins; None: there are no such logins."""
    algorithms: Sequence[str]
    """Allowed algorithms, all with public keys."""
    name_claim: str
    groups_claim: str


def is_jwt(text: str) -> bool:
    """True when a text has the form of a JWT, which no Nimbus token has."""
    return text.count(".") == 2


class JwtVerifier:
    """Verifies signed tokens and returns their principals. Any thread."""

    def __init__(self, rules: JwtRules, grants: Grants) -> None:
        self.rules, self._grants = rules, grants
        self._keys: Mapping[str, Mapping[str, Any]] = {}

    @property
    def has_keys(self) -> bool:
        """True when the keys of the provider were fetched."""
        return bool(self._keys)

    def know_keys(self, published: Iterable[Any]) -> int:
        """Replace the provider's keys, unless none is usable. Return the number of usable keys."""
        keys = {
            key["kid"]: key
            for key in list(published)[:MAX_KEYS]
            if isinstance(key, dict)
            and isinstance(key.get("kid"), str)
            and key.get("kty") in _KEY_TYPES
            and key.get("use", "sig") == "sig"
        }
        self._keys = keys or self._keys
        return len(keys)

    def lacks_key(self, text: str) -> bool:
        """True when a token is well-formed and its key is unknown."""
        try:
            return self._header(text)["kid"] not in self._keys
        except JwtRefusedError:
            return False

    def bearer(self, text: str, address: str) -> Principal:
        """The principal of a request's token. Raises JwtRefusedError, AccessDeniedError."""
        return self._principal(self._claims(text, self.rules.audience), address)

    def logged_in(self, text: str, nonce: str, address: str) -> Principal:
        """The principal of a login's ID token. Raises JwtRefusedError, AccessDeniedError."""
        client_id = self.rules.client_id or ""
        claims = self._claims(text, client_id)
        said = claims.get("nonce")
        if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
            raise JwtRefusedError("token_invalid", "the ID token is of another login")
        if claims.get("azp", client_id) != client_id:
            raise JwtRefusedError("token_invalid", "the ID token is for another client")
        return self._principal(claims, address)

    def principal(
        self, *, name: str, issuer: str, groups: Sequence[str], expires_at: datetime, address: str
    ) -> Principal:
        """The principal of a login, with the current grant of its groups. Raises AccessDeniedError."""
        grant = self._grants.of(name, issuer, groups)
        return Principal(
            name=name,
            role=grant.role,
            source=PrincipalSource.OIDC,
            teams=grant.teams,
            issuer=issuer,
            groups=self._grants.known(groups),
            expires_at=expires_at,
            address=address,
        )

    def _claims(self, text: str, audience: str) -> Claims:
        import jwt

        header = self._header(text)
        key = self._keys.get(header["kid"])
        if key is None:
            raise JwtRefusedError("token_invalid", "the provider has no such key as the token is signed with")
        algorithm = header["alg"]
        try:
            if key.get("alg", algorithm) != algorithm:
                raise JwtRefusedError("token_invalid", f"the token's key is not for {algorithm}")
            claims: Claims = jwt.decode(
                text,
                jwt.PyJWK(dict(key), algorithm),
                algorithms=[algorithm],
                audience=audience,
                issuer=self.rules.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
        except jwt.ExpiredSignatureError as exc:
            raise JwtRefusedError("token_expired", "the token has expired: get another one") from exc
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as exc:
            said = str(exc) if isinstance(exc, jwt.InvalidTokenError) else "it cannot be read"
            raise JwtRefusedError("token_invalid", f"the token is not good here: {said[:200]}") from exc
        return claims

    def _header(self, text: str) -> Mapping[str, Any]:
        """The header of a token, not verified yet; its algorithm is an allowed one."""
        import jwt

        if len(text) > LONGEST_TOKEN:
            raise JwtRefusedError("token_invalid", f"the token is above {LONGEST_TOKEN} bytes")
        try:
            header = jwt.get_unverified_header(text)
            kid, kind = header.get("kid"), str(header.get("typ", "")).lower()
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as exc:
            raise JwtRefusedError("token_invalid", "the token cannot be read") from exc
        if header.get("alg") not in self.rules.algorithms:
            allowed = ", ".join(self.rules.algorithms)
            raise JwtRefusedError("token_invalid", f"the token must be signed with one of {allowed}")
        if not isinstance(kid, str) or kind not in _TOKEN_TYPES:
            raise JwtRefusedError("token_invalid", "the token names no key, or is no token to log in with")
        return header

    def _principal(self, claims: Claims, address: str) -> Principal:
        name, groups = claims.get(self.rules.name_claim), claims.get(self.rules.groups_claim)
        if not isinstance(name, str) or not _is_name(name):
            raise JwtRefusedError("token_invalid", f"the claim {self.rules.name_claim} is no name")
        if self.rules.name_claim == "email" and claims.get("email_verified", True) is not True:
            raise JwtRefusedError("token_invalid", "the provider has not verified the claim email")
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return self.principal(
            name=f"{NAME_PREFIX}{name}",
            issuer=self.rules.issuer,
            groups=[group for group in listed if isinstance(group, str)],
            expires_at=datetime.fromtimestamp(min(int(claims["exp"]), _LAST_SECOND), UTC),
            address=address,
        )


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()
