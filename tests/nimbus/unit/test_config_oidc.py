"""The section of the identity provider: refusals, and the resulting settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nimbus.access.oidc import GroupRole
from nimbus.bootstrap import access
from nimbus.config import InvalidConfigurationError
from nimbus.config.load import secret_files
from nimbus.domain.cluster.access import AccessRole
from tests.nimbus.unit.test_config_settings import GOOD, load, refusal

PROVIDER: dict[str, Any] = {
    "issuer": "https://login.example.com/realms/data",
    "client_id": "nimbus",
    "groups": {"ops": {"role": "operator"}, "sales": {"role": "author", "teams": ["sales"]}},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"issuer": "http://login.example.com"}, "http:// is for addresses of this host alone"),
        ({"issuer": "https://a:b@login.example.com"}, "without credentials or query"),
        ({"issuer": "https://login.example.com/?x=1"}, "without credentials or query"),
        ({"issuer": "https://[::1"}, "without credentials or query"),
        ({"issuer": "login.example.com"}, "must be https://host"),
        ({"issuer": "ftp://login.example.com"}, "must begin with https://"),
        ({"issuer": 7}, "must be https://host"),
        ({"redirect_uri": "http://nimbus.example.com/ui/login/callback"}, "must begin with https://"),
        ({"algorithms": ["HS256"]}, "must be one of RS256"),
        ({"algorithms": ["none"]}, "must be one of RS256"),
        ({"algorithms": []}, "must not be empty"),
        (
            {"groups": {"ops": {"role": "root"}}},
            "must be one of none, status, logs, viewer",
        ),
        ({"groups": {"ops": {"team": "x"}}}, "unknown key"),
        ({"groups": {}}, "nobody could come in"),
        ({"client_id": None}, "tokens for anybody would be taken"),
        ({"client_id": None, "audience": "x", "client_secret": "y"}, "client_id is not"),
        ({"scopes": ["profile"]}, "openid is not among them"),
        ({"issuer": None}, "is given and issuer is not"),
    ],
)
def test_provider_that_cannot_be_right_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    lines = refusal(tmp_path, {**GOOD, "oidc": PROVIDER | changes})

    assert any("oidc." in line and said in line for line in lines), lines


def test_provider_of_this_host_needs_no_tls(tmp_path: Path) -> None:
    found = load(tmp_path, {**GOOD, "oidc": PROVIDER | {"issuer": "http://127.0.0.1:8080/"}})

    assert found.oidc.issuer == "http://127.0.0.1:8080/", "as the provider spells it"


def test_secret_of_the_client_comes_from_a_file_and_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    environ = {"NIMBUS__OIDC__CLIENT_SECRET_FILE": str(secret)}
    settings = load(tmp_path, {**GOOD, "oidc": PROVIDER}, environ)

    assert settings.oidc.client_secret is not None
    assert settings.oidc.client_secret.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)
    assert secret in secret_files(settings, environ)


def test_groups_of_the_configuration_become_grants(tmp_path: Path) -> None:
    settings = load(tmp_path, {**GOOD, "oidc": PROVIDER | {"default_role": "viewer"}})
    grants = access.build_grants(settings)

    assert grants is not None
    assert grants.issuer == PROVIDER["issuer"]
    assert grants.by_group["sales"] == GroupRole(role=AccessRole.AUTHOR, teams=("sales",))
    assert grants.default_role is AccessRole.VIEWER
    assert access.build_grants(load(tmp_path, GOOD)) is None


def test_tokens_are_for_the_client_unless_an_audience_is_given(tmp_path: Path) -> None:
    def audience(**changes: Any) -> str:
        jwts = access.build_jwts(load(tmp_path, {**GOOD, "oidc": PROVIDER | changes}))
        assert jwts is not None
        return jwts.rules.audience

    assert (audience(), audience(audience="api")) == ("nimbus", "api")


def test_start_is_refused_clearly_while_the_extra_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, plain = load(tmp_path, {**GOOD, "oidc": PROVIDER}), load(tmp_path, GOOD)
    monkeypatch.setattr(
        access, "find_spec", lambda name: None if name == "jwt" else importlib.util.find_spec(name)
    )

    with pytest.raises(InvalidConfigurationError, match=r"pip install 'nimbus-scheduler\[oidc\]'"):
        access.build_jwts(settings)
    assert access.build_jwts(plain) is None
    assert access.build_provider(plain, None, CollectorRegistry()) is None
