"""`nimbus token`, `nimbus login` and `nimbus pipeline own`, on a real server that requires tokens."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus import records
from nimbus.access.tokens import digest_of
from nimbus.domain.cluster.access import AccessGrant, AccessRole, Token
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import CreateToken, GrantAccess, RevokeAccess, RevokeToken, SetOwner
from tests.nimbus.integration.conftest import T0

Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def _kept_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has a user without stored tokens."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NIMBUS_TOKEN", raising=False)


def test_first_token_comes_from_a_file_and_lets_its_owner_log_in_and_work(
    world: Any, nimbus: Invoke, tmp_path: Path, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, kept = tmp_path / "tokens.json", tmp_path / "config/nimbus/credentials.json"
    world.gate.required = True
    made = nimbus("token", "create", "ada", "--role", "admin", "--file", str(file))
    text = made.stdout.strip()
    assert made.exit_code == 0
    assert text not in file.read_text(), "its SHA-256 alone"
    (token,) = records.TOKENS.decode(file.read_bytes(), "file").tokens
    assert token.sha256 == digest_of(text.split("_", 2)[2])
    assert nimbus("pipeline", "list").exit_code == 7
    refused = nimbus("login", stdin=f"{text}\n")
    assert (refused.exit_code, kept.exists()) == (7, False), "the server does not know it yet"

    world.gate.know_file({token.id: token})
    done = nimbus("login", stdin=f"{text}\n")

    assert done.exit_code == 0
    assert "you are ada (admin)" in done.stdout
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {"tokens": {api_url: text}}
    assert nimbus("pipeline", "list").exit_code == 0
    (listed,) = json.loads(nimbus("token", "list", "-o", "json").stdout)["tokens"]
    assert (listed["id"], listed["in_file"]) == (token.id, True)
    assert "file" in nimbus("token", "list").stdout
    monkeypatch.setenv("NIMBUS_TOKEN", "nbs_wrong")
    assert nimbus("pipeline", "list").exit_code == 7, "the variable wins"
    monkeypatch.delenv("NIMBUS_TOKEN")
    assert nimbus("login", "--forget").output.startswith(f"removed the token for {api_url} in ")
    assert nimbus("login", "--forget").output.startswith(f"there was no token for {api_url} in ")
    assert nimbus("pipeline", "list").exit_code == 7


def test_second_token_in_a_file_leaves_the_first(nimbus: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    for name in ("ada", "bob"):
        assert nimbus("token", "create", name, "--role", "viewer", "--file", str(file)).exit_code == 0

    assert [token.name for token in records.TOKENS.decode(file.read_bytes(), "file").tokens] == ["ada", "bob"]


def test_token_is_made_listed_and_revoked_through_a_scheduler_that_never_sees_its_secret(
    world: Any, nimbus: Invoke
) -> None:
    made = nimbus("token", "create", "ci", "--role", "author", "--team", "sales", "--expires", "90d")
    assert made.exit_code == 0
    world.deciding, world.health.leading = False, None
    nimbus("token", "create", "ci", "--role", "author", "--team", "sales", "--expires", "90d")
    nimbus("token", "revoke", "0" * 12)
    name = nimbus("token", "revoke", "ada")
    nimbus("pipeline", "own", "sums", "sales")
    nimbus("pipeline", "own", "sums", "--nobody")

    create, revoke, own, nobody = (queued.command for queued in world.reader.commands())
    assert isinstance(create, CreateToken)
    assert (create.name, create.role, create.teams, create.expires_at is None) == (
        "ci",
        "author",
        ("sales",),
        False,
    )
    assert revoke == RevokeToken(id="0" * 12)
    assert name.exit_code == 2
    assert "'ada' is no id of a token: `nimbus token list` shows them" in name.output
    assert (own, nobody) == (SetOwner(pipeline="sums", owner="sales"), SetOwner(pipeline="sums", owner=None))  # type: ignore[arg-type]

    assert "no tokens" in nimbus("token", "list").output
    token = Token(id="0" * 12, name="ci", role=AccessRole.AUTHOR, sha256="0" * 64, created_at=T0)
    world.cluster.put(ClusterSettings(tokens={token.id: token}))
    assert {"ci", "author", "never", token.id} <= set(nimbus("token", "list").stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        ("token", "create", "x", "--role", "root"),
        ("token", "create", "x", "--role", "viewer", "--expires", "soon"),
        ("pipeline", "own", "sums"),
        ("pipeline", "own", "sums", "ada", "--nobody"),
    ],
)
def test_words_that_make_no_sense_are_refused(nimbus: Invoke, words: tuple[str, ...]) -> None:
    assert nimbus(*words).exit_code == 2


def test_login_refuses_what_is_no_token_and_asks_nobody(nimbus: Invoke) -> None:
    refused = nimbus("login", stdin="password\n")

    assert refused.exit_code == 2
    assert "password" not in refused.stderr


def test_grants_are_given_taken_listed_and_explained(world: Any, nimbus: Invoke, api_url: str) -> None:
    world.deciding, world.health.leading = False, None
    nimbus("access", "grant", "finance", "logs", "pipeline:sums", "--reason", "on call")
    nimbus("access", "revoke", "finance", "finance_*", "--reason", "over")
    wrong = nimbus("access", "grant", "finance", "logs", "sums", "--reason", "x")
    grant = AccessGrant(
        who="finance", role=AccessRole.LOGS, on="pipeline:sums", reason="on call", by="root", at=T0
    )
    token = Token(
        id="0" * 12, name="ada", role=AccessRole.NONE, teams=("finance",), sha256="0" * 64, created_at=T0
    )
    world.cluster.put(ClusterSettings(tokens={token.id: token}, grants=(grant,)))

    assert [queued.command for queued in world.reader.commands()] == [
        GrantAccess(who="finance", role=AccessRole.LOGS, on="pipeline:sums", reason="on call"),
        RevokeAccess(who="finance", on="finance_*", reason="over"),
    ]
    assert (wrong.exit_code, "body.on" in wrong.output) == (2, True)
    assert "pipeline:sums" in nimbus("access", "show").stdout
    assert "no grants" in nimbus("access", "show", "sales").output
    yes, no = (nimbus("access", "can", "ada", role, "pipeline:sums") for role in ("logs", "viewer"))
    assert (yes.exit_code, no.exit_code) == (0, 7)
    assert yes.stdout == "yes: the grant of logs to finance on pipeline:sums, by root: on call\n"
    assert no.stdout == (
        "no: the highest is logs, by the grant of logs to finance on pipeline:sums, by root: on call: "
        "`nimbus access grant ada viewer pipeline:sums --reason WHY`\n"
    )
    page = httpx.get(f"{api_url}/ui/about").text
    assert page.count("on call") == 1
