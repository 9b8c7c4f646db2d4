"""Tokens, roles, sessions, limits: the rules of permissions, without a server."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry
from starlette.datastructures import Headers

from nimbus.access import login_state, rules, session, tokens
from nimbus.access.gate import (
    FAILURES,
    FAILURES_AT_ONCE,
    MAX_NAMES,
    AccessGate,
    Denial,
    Presented,
    RateLimit,
)
from nimbus.access.oidc import Grants, GroupRole
from nimbus.api.access import cookie
from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Principal, PrincipalSource, Token
from nimbus.domain.commands import (
    Abdicate,
    CommandKind,
    CreateToken,
    PausePipeline,
    PublishRelease,
    RemovePipeline,
)
from nimbus.domain.ids import PipelineName, ReleaseDigest

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEY = b"k" * 32
SUMS = PipelineName("sums")
PUBLISH = PublishRelease(pipeline=SUMS, digest=ReleaseDigest("a" * 64))


def a_token(role: AccessRole = AccessRole.VIEWER, name: str = "ada", **fields: object) -> tuple[str, Token]:
    made = tokens.new_token()
    token = Token(id=made.id, name=name, role=role, sha256=made.sha256, created_at=NOW)
    return made.text, replace(token, **fields)  # type: ignore[arg-type]


def a_gate(*known: Token, required: bool = True, per_s: int | None = None) -> AccessGate:
    gate = AccessGate(required=required, per_s=per_s)
    gate.know_store({token.id: token for token in known}, KEY)
    return gate


def admitted(gate: AccessGate, text: str = "", **sent: str) -> Principal | Denial:
    authorization = f"Bearer {text}" if text else ""
    return gate.admit(Presented(authorization=authorization, address="10.0.0.1", **sent), NOW, 0.0)


def code(found: Principal | Denial) -> str:
    return found.code if isinstance(found, Denial) else "ok"


def who(role: AccessRole, name: str = "ada", teams: tuple[str, ...] = ()) -> Principal:
    return Principal(name=name, role=role, source=PrincipalSource.TOKEN, teams=teams, token_id="0" * 12)


def test_token_is_found_by_its_text_alone() -> None:
    text, token = a_token()
    known = {token.id: token}

    assert tokens.find(text, known) == token
    assert text not in repr(token)
    wrong = [
        text[:-1] + ("A" if text[-1] != "A" else "B"),
        text + "A",
        text[4:],
        "",
        f"nbs_{'0' * 12}_{'A' * 43}",
    ]
    assert [tokens.find(other, known) for other in wrong] == [None] * len(wrong)


def test_each_role_includes_those_before_it() -> None:
    order = [AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.AUTHOR, AccessRole.ADMIN]

    assert [[one.includes(other) for other in order] for one in order] == [
        [place <= height for place in range(4)] for height in range(4)
    ]


@pytest.mark.parametrize(
    ("command", "least"),
    [
        (PausePipeline(pipeline=SUMS), AccessRole.OPERATOR),
        (PUBLISH, AccessRole.AUTHOR),
        (RemovePipeline(pipeline=SUMS), AccessRole.AUTHOR),
        (Abdicate(reason="x"), AccessRole.ADMIN),
        (CreateToken(id="0" * 12, name="x", role=AccessRole.VIEWER, sha256="0" * 64), AccessRole.ADMIN),
    ],
)
def test_command_needs_a_role(command: CommandKind, least: AccessRole) -> None:
    assert command.needs_role is least


@pytest.mark.parametrize(
    ("principal", "owner", "may"),
    [
        (who(AccessRole.AUTHOR), "ada", True),
        (who(AccessRole.AUTHOR, teams=("data",)), "data", True),
        (who(AccessRole.AUTHOR), "data", False),
        (who(AccessRole.AUTHOR), None, False),
        (who(AccessRole.ADMIN), "data", True),
        (who(AccessRole.ADMIN), None, True),
    ],
)
def test_pipeline_is_changed_by_its_owners_authors_and_by_admins(
    principal: Principal, owner: str | None, may: bool
) -> None:
    try:
        rules.check_owner(principal, SUMS, owner)
        allowed = True
    except AccessDeniedError as exc:
        allowed = False
        assert exc.code == "not_owner"

    assert allowed is may


def test_session_is_valid_until_it_expires_for_whoever_has_the_key() -> None:
    principal = who(AccessRole.VIEWER)
    late = session.end_of(principal, NOW)
    made = session.session_for(principal, KEY, late)

    assert session.read(made, KEY, NOW) == session.BrowserSession("0" * 12, NOW + session.LIFETIME)
    assert session.read(made, KEY, late - timedelta(seconds=1)) is not None
    assert session.read(made, KEY, late) is None
    assert session.read(made, b"other" * 8, NOW) is None


@pytest.mark.parametrize("other", ['a={"b":1}', "a[b]=1", "a=b c", 'a="b', "é=1", "a", "a=1;"])
def test_cookies_of_other_programs_on_the_host_hide_no_session(other: str) -> None:
    headers = Headers({"cookie": f"{other}; nimbus=a.9.b"})

    assert (cookie(headers, "nimbus"), cookie(headers, "none")) == ("a.9.b", "")


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "a.b.c", "é.9.9", "0" * 5000])
def test_session_that_nobody_made_is_refused(text: str) -> None:
    assert session.read(text, KEY, NOW) is None


def test_session_with_another_token_or_a_later_end_is_refused() -> None:
    made = session.session_for(who(AccessRole.VIEWER), KEY, NOW + session.LIFETIME)
    token_id, expiry, signature = made.split(".")

    assert session.read(f"{'1' * 12}.{expiry}.{signature}", KEY, NOW) is None
    assert session.read(f"{token_id}.{int(expiry) + 1}.{signature}", KEY, NOW) is None


def test_session_of_a_login_names_who_it_is_and_ends_with_the_login() -> None:
    login = Principal(
        name="oidc:ada \N{SNOWMAN}",
        role=AccessRole.ADMIN,
        source=PrincipalSource.OIDC,
        issuer="https://login.example.com",
        groups=("sales.eu", "ops"),
        expires_at=NOW + timedelta(minutes=5),
    )
    ends_at = session.end_of(login, NOW)
    made = session.session_for(login, KEY, ends_at)

    found = session.read(made, KEY, NOW)
    assert ends_at == NOW + timedelta(minutes=5)
    assert found == session.BrowserSession(session.Login(login.name, login.issuer, login.groups), ends_at)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", made), "no character that a cookie must quote"
    assert session.read(made, KEY, ends_at) is None
    assert session.read(made.replace("oidc-", "oidc-A", 1), KEY, NOW) is None
    assert code(admitted(a_gate(), session=made)) == "token_missing", "there is no provider any more"


def test_login_that_was_begun_is_no_session_and_a_session_is_no_login() -> None:
    begun = login_state.begun("/ui", KEY)
    cookie = begun.cookie(NOW)
    made = session.session_for(who(AccessRole.VIEWER), KEY, NOW + session.LIFETIME)

    assert session.read(cookie, KEY, NOW) is None
    assert session.read(f"login\n{cookie}", KEY, NOW) is None, "a quoted cookie can hold a new line"
    assert login_state.returned(made, "0" * 12, KEY, NOW) is None
    found = login_state.returned(cookie, begun.state, KEY, NOW)
    assert found is not None
    assert (found.verifier, found.nonce, found.after) == (begun.verifier, begun.nonce, "/ui")
    assert len({begun.verifier, begun.nonce, begun.state, begun.challenge}) == 4
    assert login_state.returned(cookie, begun.state, KEY, NOW + login_state.LIFETIME) is None
    assert login_state.returned(cookie, begun.state, b"other" * 8, NOW) is None
    assert login_state.returned(cookie, begun.state[:-1], KEY, NOW) is None


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "é.9.9", "0" * 5000])
def test_login_that_nobody_began_is_refused(text: str) -> None:
    assert login_state.returned(text, "a", KEY, NOW) is None


def test_groups_give_the_highest_role_and_all_their_teams() -> None:
    grants = Grants(
        issuer="https://login.example.com",
        by_group={
            "readers": GroupRole(role=AccessRole.VIEWER, teams=("a", "b")),
            "authors": GroupRole(role=AccessRole.AUTHOR, teams=("b", "c")),
            "admins": GroupRole(role=AccessRole.ADMIN),
        },
    )

    found = grants.of("ada", grants.issuer, ["x", "authors", "readers"])

    assert found == GroupRole(role=AccessRole.AUTHOR, teams=("a", "b", "c"))
    assert grants.known(["x", "authors", "readers"]) == ("readers", "authors")


def test_gate_names_who_has_a_token() -> None:
    text, token = a_token(AccessRole.OPERATOR, teams=("data",))

    found = admitted(a_gate(token), text)

    assert found == Principal(
        name="ada",
        role=AccessRole.OPERATOR,
        source=PrincipalSource.TOKEN,
        teams=("data",),
        token_id=token.id,
        address="10.0.0.1",
    )


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        ("", "token_missing"),
        ("Basic YWRtaW46YWRtaW4=", "bad_scheme"),
        ("Bearer", "token_unknown"),
        ("Bearer nbs_x_y", "token_unknown"),
        ("Bearer é", "token_unknown"),
    ],
)
def test_gate_refuses_who_has_none(authorization: str, said: str) -> None:
    found = a_gate().admit(Presented(authorization=authorization), NOW, 0.0)

    assert (code(found), isinstance(found, Denial) and found.status) == (said, 401)


def test_gate_refuses_a_token_that_has_expired_or_was_revoked_and_its_sessions() -> None:
    text, token = a_token(expires_at=NOW)
    later = replace(token, expires_at=NOW + timedelta(seconds=1))
    gate = a_gate(later)
    principal = admitted(gate, text)
    assert isinstance(principal, Principal)
    begun = gate.begin_session(principal, NOW)
    assert begun is not None
    assert code(admitted(gate, session=begun)) == "ok"

    assert code(admitted(a_gate(token), text)) == "token_expired"
    assert code(admitted(a_gate(token), session=begun)) == "token_missing"
    gate.know_store({}, KEY)

    assert code(admitted(gate, text)) == "token_unknown"
    assert code(admitted(gate, session=begun)) == "token_missing"


def test_gate_makes_everybody_an_admin_where_no_token_is_required_but_refuses_a_wrong_one() -> None:
    gate = a_gate(required=False)
    found = admitted(gate)

    assert isinstance(found, Principal)
    assert (found.role, found.source) == (AccessRole.ADMIN, PrincipalSource.ANONYMOUS)
    assert code(admitted(gate, a_token()[0])) == "token_unknown"


def test_gate_that_has_not_read_the_tokens_asks_for_patience_but_knows_its_file() -> None:
    text, token = a_token()
    gate = AccessGate(required=True)

    found = admitted(gate, text)
    assert (code(found), isinstance(found, Denial) and found.status) == ("access_unknown", 503)

    gate.know_file({token.id: token})
    found = admitted(gate, text)
    assert isinstance(found, Principal)
    assert found.source is PrincipalSource.FILE


def test_address_that_fails_often_is_held_up_and_its_neighbour_with_a_token_is_not() -> None:
    text, token = a_token()
    gate = a_gate(token)

    codes = [code(admitted(gate, a_token()[0])) for _ in range(FAILURES_AT_ONCE + 1)]

    assert codes == ["token_unknown"] * FAILURES_AT_ONCE + ["too_many_requests"]
    assert code(admitted(gate, text)) == "ok"


def test_token_that_is_used_too_often_is_held_up_and_no_other() -> None:
    (text, token), (other_text, other) = a_token(), a_token()
    gate = a_gate(token, other, per_s=2)

    codes = [code(admitted(gate, text)) for _ in range(21)]

    assert codes == ["ok"] * 20 + ["too_many_requests"]
    assert code(admitted(gate, other_text)) == "ok"


def test_bucket_fills_with_time_up_to_its_size() -> None:
    limit = RateLimit(per_s=2, burst=3)
    assert [limit.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.take("a", 0.5) == 0.0
    assert [limit.take("a", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_limit_remembers_a_bounded_number_of_names() -> None:
    limit = RateLimit(per_s=1, burst=1)
    limit.take("first", 0.0)
    for number in range(MAX_NAMES):
        limit.take(f"n{number}", 0.0)

    assert len(limit._buckets) == MAX_NAMES
    assert limit.take("first", 0.0) == 0.0, "forgotten, so its bucket is full again"


@pytest.mark.parametrize(
    ("path", "query", "refused"),
    [
        ("/api/v1/runs", "access_token=x", True),
        ("/api/v1/runs", "limit=1&token=x", True),
        ("/api/v1/runs", "x=TOKEN", True),
        ("/ui/TOKEN", "", True),
        ("/api/v1/runs", "pipeline=nbs_sums&limit=3", False),
        ("/api/v1/tokens/0123456789ab", "wait=10", False),
    ],
)
def test_token_in_an_address_is_seen(path: str, query: str, refused: bool) -> None:
    text = a_token()[0]
    escaped = text.replace("_", "%5F")

    assert tokens.is_in_url(path.replace("TOKEN", text), query.replace("TOKEN", escaped)) is refused


def test_gate_counts_each_failure_by_its_reason_also_when_it_asks_for_fewer() -> None:
    registry = CollectorRegistry()
    text, token = a_token(expires_at=NOW)
    good, known = a_token()
    gate = AccessGate(required=True, registry=registry)
    gate.know_store({token.id: token, known.id: known}, KEY)
    admitted(gate)
    admitted(gate, text)
    gate.admit(Presented(authorization="Basic abc", address="10.0.0.1"), NOW, 0.0)
    for _ in range(FAILURES_AT_ONCE):
        last = admitted(gate, a_token()[0])
    assert (code(last), code(admitted(gate, good))) == ("too_many_requests", "ok")

    counted = [registry.get_sample_value("nimbus_auth_failures_total", {"reason": one}) for one in FAILURES]
    assert dict(zip(FAILURES, counted, strict=True)) == {
        "token_missing": 1,
        "bad_scheme": 1,
        "token_expired": 1,
        "token_unknown": FAILURES_AT_ONCE,
        "token_invalid": 0,
        "login_refused": 0,
    }
