"""Requests to an identity provider, and the handling of its answers, with a provider on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from nimbus.access.login_state import begun
from nimbus.access.oidc import GroupRole
from nimbus.adapters import oidc
from nimbus.adapters.oidc import ClientRegistration, OidcProvider
from nimbus.bootstrap import access as bootstrap
from nimbus.cli.doctor import Level
from nimbus.cli.doctor.services import identity_provider_of
from nimbus.domain.cluster.access import AccessRole
from nimbus.ports import IdentityProviderError
from tests.nimbus.integration.oidc_issuer import CLIENT, CLIENT_SECRET, Issuer, verifier
from tests.nimbus.unit.test_config_settings import GOOD, load

LOGIN = begun("/ui", b"k" * 32)
BACK = "https://nimbus.example.com/ui/login/callback"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def provider(issuer: Issuer, client: ClientRegistration | None = CLIENT) -> OidcProvider:
    jwts = verifier(issuer.url, {"data-platform": GroupRole(role=AccessRole.ADMIN)})
    return OidcProvider(issuer.url, client, jwts)


async def login(provider: OidcProvider, **wrong: str) -> tuple[httpx.URL, str]:
    """Log in. Returns the address of the login, and the ID token."""
    place = await provider.login_url(
        redirect_uri=BACK, state=LOGIN.state, nonce=LOGIN.nonce, challenge=LOGIN.challenge
    )
    async with httpx.AsyncClient() as browser:
        back = httpx.URL((await browser.get(f"{place}&agree=1")).headers["location"])
    asked: dict[str, Any] = {"code": back.params["code"], "redirect_uri": BACK, "verifier": LOGIN.verifier}
    return httpx.URL(place), await provider.id_token(**asked | wrong)


def test_login_names_client_scopes_and_challenge_and_sends_the_secret_in_the_header(issuer: Issuer) -> None:
    issuer.changes = {"authorization_endpoint": f"{issuer.url}/authorize?tenant=a"}
    place, token = asyncio.run(login(provider(issuer, replace(CLIENT, scopes=("openid", "groups")))))

    assert place.params["tenant"] == "a"
    assert (place.params["client_id"], place.params["scope"]) == ("nimbus", "openid groups")
    assert (place.params["response_type"], place.params["code_challenge"]) == ("code", LOGIN.challenge)
    assert token.count(".") == 2
    header, form = issuer.posted
    assert (header is not None, "client_secret" in form) == (True, False)


def test_secret_goes_into_the_form_where_the_provider_takes_it_there_alone(issuer: Issuer) -> None:
    issuer.changes = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    issuer.form_secret = CLIENT_SECRET
    asyncio.run(login(provider(issuer)))

    assert (issuer.posted[0], issuer.posted[1]["client_secret"]) == (None, CLIENT_SECRET)


def test_public_client_sends_no_secret(issuer: Issuer) -> None:
    issuer.form_secret = None
    asyncio.run(login(provider(issuer, replace(CLIENT, secret=None))))

    assert (issuer.posted[0], "client_secret" in issuer.posted[1]) == (None, False)


@pytest.mark.parametrize(
    "wrong", [{"verifier": "x" * 43}, {"code": "x"}, {"redirect_uri": "https://x.example"}]
)
def test_login_with_another_secret_code_or_address_is_refused_by_the_provider(
    issuer: Issuer, wrong: dict[str, str]
) -> None:
    with pytest.raises(IdentityProviderError, match="invalid_grant") as refused:
        asyncio.run(login(provider(issuer), **wrong))

    assert refused.value.refused


def test_answer_that_comes_byte_by_byte_is_waited_for_a_bounded_time(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.drips = threading.Event()
    asked = provider(issuer)
    asyncio.run(asked.prepare(issuer.token()))
    monkeypatch.setattr(oidc, "ANSWER_S", 0.5)

    with pytest.raises(IdentityProviderError, match="it took too long"):
        asyncio.run(asked.id_token(code="x", redirect_uri=BACK, verifier=LOGIN.verifier))


def test_provider_without_logins_gives_keys_alone(issuer: Issuer) -> None:
    issuer.changes = {"authorization_endpoint": None, "token_endpoint": None}
    jwts = verifier(issuer.url, {"data-platform": GroupRole(role=AccessRole.ADMIN)})
    asyncio.run(OidcProvider(issuer.url, None, jwts).prepare(issuer.token()))

    assert jwts.bearer(issuer.token(), "").role is AccessRole.ADMIN
    with pytest.raises(IdentityProviderError, match="client_id is not given"):
        asyncio.run(login(provider(issuer, None)))


def test_doctor_says_whether_the_provider_is_the_one_that_is_configured(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = {"issuer": issuer.url, "client_id": "nimbus", "default_role": "viewer"}
    plain, settings = load(tmp_path, GOOD), load(tmp_path, {**GOOD, "oidc": section})

    (well,) = identity_provider_of(settings)
    issuer.changes = {"issuer": "https://login.example.com"}
    (other,) = identity_provider_of(settings)
    monkeypatch.setattr(bootstrap, "find_spec", lambda name: None)
    (without,) = identity_provider_of(settings)

    assert (well.verdict, "signatures: 1" in well.detail) == (Level.OK, True)
    assert (other.verdict, "calls itself 'https://login.example.com'" in other.detail) == (
        Level.FAIL,
        True,
    )
    assert (without.verdict, "nimbus-scheduler[oidc]" in without.advice) == (Level.FAIL, True)
    assert list(identity_provider_of(plain)) == []
