"""Tokens and logins of an identity provider, over HTTP: a real server, a real provider on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from nimbus.access.gate import RateLimit
from nimbus.access.oidc import LEEWAY_S, GroupRole
from nimbus.adapters import oidc
from nimbus.adapters.oidc import OidcProvider
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.cli.main import cli
from nimbus.domain.cluster.access import AccessRole, PrincipalSource
from tests.nimbus.integration.conftest import World
from tests.nimbus.integration.oidc_issuer import (
    CLIENT,
    CLIENT_ID,
    CLIENT_SECRET,
    Issuer,
    jwk,
    rsa_key,
    verifier,
)

KEY = b"k" * 32
GROUPS = {
    "data-platform": GroupRole(role=AccessRole.ADMIN),
    "sales": GroupRole(role=AccessRole.AUTHOR, teams=("sales",)),
    "readers": GroupRole(role=AccessRole.VIEWER),
}
WHOAMI = "/api/v1/whoami"
TLS = ssl.create_default_context()
"""Never used, and expensive: each client reads all authorities."""


@dataclass
class HeldTime:
    """A monotonic clock that a test moves."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Exchanged:
    """Forwards to the provider of the current test. Tests share applications, which are slow to build."""

    def __init__(self) -> None:
        self.current: OidcProvider | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


@dataclass
class Scheduler:
    """A scheduler that requires tokens."""

    world: World
    url: str
    http: httpx.Client
    provider: Exchanged
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def ask(
        self, token: str = "", method: str = "GET", path: str = WHOAMI, cookie: str = "", **request: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}".encode("latin-1")} if token else {}
        headers |= {"Cookie": f"nimbus={cookie}".encode()} if cookie else {}
        return self.http.request(method, f"{self.url}{path}", headers=headers, **request)

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, verify=TLS)

    def counted(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture(autouse=True)
def _servers_stay(long_lived: Any) -> Iterator[None]:
    """Servers start threads on demand."""
    yield
    long_lived.threads |= {one for one in threading.enumerate() if one.name == "AnyIO worker thread"}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Scheduler]]:
    with ExitStack() as stack:
        http = stack.enter_context(httpx.Client(timeout=30, verify=TLS))
        found = []
        for _ in range(3):
            world, provider = World(), Exchanged()
            world.deciding = False
            services = replace(world.services(), provider=provider, browser_login=True)
            server = ApiServer(create_app(services))
            server.start()
            stack.callback(server.stop)
            found.append(Scheduler(world, server.url, http, provider))
        yield found


@dataclass
class Cluster:
    """Schedulers of one cluster, with one provider."""

    issuer: Issuer
    servers: list[Scheduler]
    time: HeldTime = field(default_factory=HeldTime)

    def scheduler(
        self,
        *,
        groups: dict[str, GroupRole] = GROUPS,
        key: bytes = KEY,
        default_role: AccessRole | None = None,
    ) -> Scheduler:
        """Add a scheduler."""
        scheduler = self.servers.pop()
        scheduler.registry, issuer = CollectorRegistry(), self.issuer.url
        jwts = verifier(issuer, groups, default_role)
        gate = scheduler.world.gate
        gate.__init__(required=True, jwts=jwts, registry=scheduler.registry)  # type: ignore[misc]
        gate.know_store({}, key)
        gate._failures = RateLimit(1e9, 1e9)
        scheduler.provider.current = OidcProvider(issuer, CLIENT, jwts, scheduler.registry, self.time)
        return scheduler


@pytest.fixture
def cluster(servers: list[Scheduler]) -> Iterator[Cluster]:
    with Issuer() as issuer:
        yield Cluster(issuer, [*servers])


@pytest.fixture
def scheduler(cluster: Cluster) -> Scheduler:
    return cluster.scheduler()


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "ok")


def fetches(issuer: Issuer) -> int:
    return issuer.asked["/keys"]


# Tokens of requests


def test_token_of_the_provider_says_who_asks_and_its_groups_what_they_may(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    admin = scheduler.ask(cluster.issuer.token()).json()
    author = scheduler.ask(cluster.issuer.token(sub="bob", groups=["sales", "readers", "x"])).json()

    assert (admin["name"], admin["role"], admin["source"]) == ("oidc:ada", "admin", "oidc")
    assert (author["name"], author["role"], author["teams"]) == ("oidc:bob", "author", ["sales"])
    assert fetches(cluster.issuer) == 1


def test_command_carries_the_groups_and_the_issuer_for_the_leader(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    token = cluster.issuer.token(groups=["other", "sales", "data-platform"])
    assert scheduler.ask(token, "POST", "/api/v1/pipelines/sums/pause").status_code == 202

    *_, queued = scheduler.world.reader.commands()
    asked_by = queued.asked_by
    assert asked_by is not None
    assert (queued.submitted_by, asked_by.source) == ("oidc:ada", PrincipalSource.OIDC)
    assert (asked_by.issuer, asked_by.groups) == (cluster.issuer.url, ("data-platform", "sales"))
    assert asked_by.expires_at is not None


@pytest.mark.parametrize("name", ["ada", "system:serviceaccount:a:b", "auth0|5f7c", "Ada é L.", "a" * 200])
def test_who_the_provider_names_can_be_given_a_pipeline_and_found_in_the_list_of_commands(
    cluster: Cluster, scheduler: Scheduler, name: str
) -> None:
    token = cluster.issuer.token(sub=name)
    body = {"owner": f"oidc:{name}"}
    given = scheduler.ask(token, "PUT", "/api/v1/pipelines/sums/owner", json=body)
    listed = scheduler.ask(token, path="/api/v1/commands", params={"submitted_by": f"oidc:{name}"})

    assert (given.status_code, listed.status_code) == (202, 200)


@pytest.mark.parametrize(
    "owner", ["oidc:", "oidc: ada", "oidc:a\nb", "oidc:a\x9b", "x:a", f"oidc:{'a' * 201}"]
)
def test_what_is_no_name_owns_nothing(cluster: Cluster, scheduler: Scheduler, owner: str) -> None:
    token, body = cluster.issuer.token(), {"owner": owner}

    assert scheduler.ask(token, "PUT", "/api/v1/pipelines/sums/owner", json=body).status_code == 422


def test_role_of_a_group_is_kept_at_every_route(cluster: Cluster, scheduler: Scheduler) -> None:
    token, before = cluster.issuer.token(groups="readers"), len(scheduler.world.reader.commands())

    assert scheduler.ask(token, path="/api/v1/runs").status_code == 200
    assert code(scheduler.ask(token, "POST", "/api/v1/pipelines/sums/pause")) == (403, "role_too_low")
    assert len(scheduler.world.reader.commands()) == before


def test_who_is_in_no_group_is_refused_or_gets_the_default_role(cluster: Cluster) -> None:
    strict, kind = cluster.scheduler(), cluster.scheduler(default_role=AccessRole.VIEWER)
    tokens = [cluster.issuer.token(groups=groups) for groups in (["x"], [], None, {"sales": 1}, 7)]

    assert [code(strict.ask(token)) for token in tokens] == [(403, "no_role")] * 5
    assert [kind.ask(token).json()["role"] for token in tokens] == ["viewer"] * 5


def _hs256(issuer: Issuer) -> str:
    """A token that is signed with the public key as a secret. PyJWT refuses to make one."""
    import hashlib
    import hmac

    public = rsa_key("one").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = issuer.token().split(".")
    header = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).rstrip(b"=")
    said = header + b"." + parts[1].encode()
    signature = base64.urlsafe_b64encode(hmac.new(public, said, hashlib.sha256).digest()).rstrip(b"=")
    return (said + b"." + signature).decode()


def _with_header(issuer: Issuer, header: bytes) -> str:
    _, payload, signature = issuer.token().split(".")
    return f"{base64.urlsafe_b64encode(header).rstrip(b'=').decode()}.{payload}.{signature}"


def _other_payload(issuer: Issuer) -> str:
    header, _, signature = issuer.token(groups="readers").split(".")
    return f"{header}.{issuer.token().split('.')[1]}.{signature}"


BAD: dict[str, Callable[[Issuer], str]] = {
    "expired": lambda issuer: issuer.token(exp=int(time.time() - LEEWAY_S) - 1),
    "not yet": lambda issuer: issuer.token(nbf=int(time.time() + LEEWAY_S) + 60),
    "issued later": lambda issuer: issuer.token(iat=int(time.time() + LEEWAY_S) + 60),
    "other audience": lambda issuer: issuer.token(aud="other"),
    "other audiences": lambda issuer: issuer.token(aud=["a", "b"]),
    "other issuer": lambda issuer: issuer.token(iss="https://issuer.example.com"),
    "issuer with a slash": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "no audience": lambda issuer: issuer.token(aud=None),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "no subject": lambda issuer: issuer.token(sub=None),
    "name with a control character": lambda issuer: issuer.token(sub="a\nb"),
    "name too long": lambda issuer: issuer.token(sub="a" * 201),
    "name with a space before it": lambda issuer: issuer.token(sub=" ada"),
    "no name": lambda issuer: issuer.token(sub=" "),
    "expiry that is none": lambda issuer: issuer.token(exp="soon"),
    "endless expiry": lambda issuer: issuer.token(exp=float("inf")),
    "alg none": lambda issuer: jwt.encode({"sub": "ada"}, "", algorithm="none", headers={"kid": "one"}),
    "HS256 with the public key": _hs256,
    "signed by another": lambda issuer: issuer.token(kid="two", header={"kid": "one"}),
    "unknown key": lambda issuer: issuer.token(kid="two"),
    "no kid": lambda issuer: jwt.encode({"sub": "ada"}, rsa_key("one"), algorithm="RS256"),
    "ES256 with a key of RSA": lambda issuer: issuer.token(kid="ec1", header={"kid": "one"}),
    "algorithm that is not allowed": lambda issuer: jwt.encode(
        {"sub": "ada"}, rsa_key("one"), algorithm="RS512", headers={"kid": "one"}
    ),
    "logout token": lambda issuer: issuer.token(header={"typ": "logout+jwt"}),
    "critical extension": lambda issuer: issuer.token(header={"crit": ["x"], "x": 1}),
    "payload of another": _other_payload,
    "deep header": lambda issuer: _with_header(issuer, b"[" * 8000),
    "header with wrong types": lambda issuer: _with_header(issuer, b'{"alg":["RS256"],"kid":{}}'),
    "header that is no object": lambda issuer: _with_header(issuer, b'"RS256"'),
    "dots": lambda issuer: "..",
    "not base64": lambda issuer: "é.é.é",
    "too long": lambda issuer: issuer.token(padding="x" * 20_000),
}


def test_bad_tokens_are_refused_and_start_one_fetch_at_most(cluster: Cluster, scheduler: Scheduler) -> None:
    assert scheduler.ask(cluster.issuer.token()).status_code == 200
    answers = {name: code(scheduler.ask(made(cluster.issuer))) for name, made in BAD.items()}

    expired = {"expired": (401, "token_expired")}
    assert answers == dict.fromkeys(BAD, (401, "token_invalid")) | expired
    assert fetches(cluster.issuer) == 1
    assert scheduler.counted("nimbus_auth_failures_total", reason="token_invalid") == len(BAD) - 1


def test_clocks_may_differ_a_little(cluster: Cluster, scheduler: Scheduler) -> None:
    now = int(time.time())
    early = cluster.issuer.token(nbf=now + 15, iat=now + 15)
    late = cluster.issuer.token(exp=now - 5)

    assert [scheduler.ask(token).status_code for token in (early, late)] == [200, 200]


def test_token_of_an_elliptic_curve_is_accepted(cluster: Cluster, scheduler: Scheduler) -> None:
    cluster.issuer.keys.append(jwk("ec1"))

    assert scheduler.ask(cluster.issuer.token(kid="ec1")).json()["name"] == "oidc:ada"


def test_keys_that_are_no_public_keys_to_sign_with_are_not_used(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 32).decode()
    cluster.issuer.keys += [{"kty": "oct", "kid": "two", "k": secret}, jwk("ec1", use="enc"), 7, {"kid": 7}]
    forged = jwt.encode({"sub": "ada"}, b"s" * 32, algorithm="HS256", headers={"kid": "two"})

    assert code(scheduler.ask(forged))[0] == 503, "nothing was fetched for a token that cannot be good"
    assert scheduler.ask(cluster.issuer.token()).status_code == 200
    assert code(scheduler.ask(forged)) == (401, "token_invalid")
    assert code(scheduler.ask(cluster.issuer.token(kid="ec1"))) == (401, "token_invalid")


# Keys


def test_flood_of_unknown_keys_fetches_once_in_ten_seconds(cluster: Cluster, scheduler: Scheduler) -> None:
    tokens = [cluster.issuer.token(header={"kid": f"k{number}"}) for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        first = [*pool.map(lambda token: code(scheduler.ask(token)), tokens)]
    assert (set(first), fetches(cluster.issuer)) == ({(401, "token_invalid")}, 1)

    cluster.time.now_s += oidc.FETCH_PAUSE_S - 1
    assert code(scheduler.ask(tokens[0])) == (401, "token_invalid")
    assert fetches(cluster.issuer) == 1
    cluster.time.now_s += 0.2 * oidc.FETCH_PAUSE_S + 1
    for token in tokens[:10]:
        scheduler.ask(token)

    assert fetches(cluster.issuer) == 2


def test_rotated_key_is_fetched_with_the_first_token_that_it_signed(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    old = cluster.issuer.token()
    assert scheduler.ask(old).status_code == 200
    cluster.issuer.keys, cluster.issuer.signs_with = [jwk("two")], "two"
    cluster.time.now_s += 60

    assert scheduler.ask(cluster.issuer.token()).status_code == 200
    assert code(scheduler.ask(old)) == (401, "token_invalid"), "its key is gone"


def test_withdrawn_key_is_no_longer_used_once_the_keys_are_old(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    old = cluster.issuer.token()
    assert scheduler.ask(old).status_code == 200
    cluster.issuer.keys = [jwk("two")]
    cluster.time.now_s += oidc.FRESH_S + 1

    def is_refused() -> bool:
        return scheduler.ask(old).status_code == 401

    assert _becomes(is_refused)


def test_last_keys_are_kept_while_the_provider_is_down(cluster: Cluster, scheduler: Scheduler) -> None:
    token = cluster.issuer.token()
    assert scheduler.ask(token).status_code == 200
    cluster.issuer.keys = []
    cluster.time.now_s += oidc.FRESH_S + 1
    assert code(scheduler.ask(cluster.issuer.token(kid="two"))) == (401, "token_invalid")
    assert scheduler.ask(token).status_code == 200, "though the provider has no keys, it says"
    cluster.issuer.down = True
    for _ in range(3):
        cluster.time.now_s += oidc.FRESH_S + 1
        assert scheduler.ask(token).status_code == 200
        assert code(scheduler.ask(cluster.issuer.token(kid="two"))) == (401, "token_invalid")

    assert _becomes(lambda: scheduler.counted("nimbus_oidc_fetches_total", outcome="failed") == 4)


def test_without_any_keys_a_token_waits_for_the_provider_to_come_back(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    cluster.issuer.down = True
    answer = scheduler.ask(cluster.issuer.token())
    assert (code(answer), answer.headers["retry-after"]) == ((503, "access_unknown"), "10")

    cluster.issuer.down = False
    cluster.time.now_s += 13
    assert scheduler.ask(cluster.issuer.token()).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://issuer.example.com"},
        {"jwks_uri": "http://keys.example.com/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": None},
        {"jwks_uri": "http://[::1"},
        {"token_endpoint": "http://192.0.2.1/token"},
        {"padding": "x" * (oidc.MAX_BYTES + 1)},
    ],
)
def test_description_that_leads_elsewhere_or_is_too_large_is_not_believed(
    cluster: Cluster, scheduler: Scheduler, changes: dict[str, Any]
) -> None:
    cluster.issuer.changes = changes

    assert code(scheduler.ask(cluster.issuer.token())) == (503, "access_unknown")
    assert fetches(cluster.issuer) == 0


def test_keys_that_are_huge_or_elsewhere_are_not_taken(cluster: Cluster, scheduler: Scheduler) -> None:
    cluster.issuer.padding = oidc.MAX_BYTES + 1
    assert code(scheduler.ask(cluster.issuer.token())) == (503, "access_unknown")

    cluster.issuer.padding = 0
    cluster.issuer.changes = {"jwks_uri": f"{cluster.issuer.url}/moved"}
    cluster.time.now_s += 13
    assert code(scheduler.ask(cluster.issuer.token())) == (503, "access_unknown"), "redirected to the keys"
    assert fetches(cluster.issuer) == 1


def test_slow_provider_holds_up_nobody_else(
    cluster: Cluster, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = cluster.issuer.token()
    assert scheduler.ask(token).status_code == 200
    cluster.issuer.held = threading.Event()
    cluster.time.now_s += 60
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(scheduler.ask, cluster.issuer.token(kid="two"))
        assert _becomes(lambda: cluster.issuer.asked["/.well-known/openid-configuration"] == 2)

        assert scheduler.ask(token).status_code == 200
        assert code(scheduler.ask()) == (401, "token_missing")
        assert not waits.done(), "the provider has not answered yet"
        cluster.issuer.held.set()
        assert code(waits.result()) == (401, "token_invalid")


def test_provider_that_never_answers_is_waited_for_a_bounded_time(
    cluster: Cluster, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "ANSWER_S", 0.2)
    cluster.issuer.held = threading.Event()

    assert code(scheduler.ask(cluster.issuer.token())) == (503, "access_unknown")


# Browsers


def at_provider(browser: httpx.Client, place: str = "/ui/login/provider") -> str:
    """Log in at the provider. Returns the address to which it redirects."""
    begun = browser.get(place)
    assert begun.status_code == 303, begun.text
    return agreed(begun)


def agreed(begun: httpx.Response) -> str:
    """The address to which the provider redirects after a person has agreed."""
    answer = httpx.get(f"{begun.headers['location']}&agree=1", timeout=30, verify=TLS)
    return str(answer.headers["location"])


def test_browser_logs_in_at_the_provider_and_any_scheduler_accepts_it(cluster: Cluster) -> None:
    one, other, foreign = cluster.scheduler(), cluster.scheduler(), cluster.scheduler(key=b"o" * 32)
    cluster.issuer.person["groups"] = ["sales"]
    cluster.issuer.lasts_s = 600
    with one.browser() as browser:
        page = browser.get("/ui/login?next=/ui/runs")
        assert 'href="/ui/login/provider?next=%2Fui%2Fruns"' in page.text
        assert 'name="token"' in page.text
        done = browser.get(at_provider(browser, "/ui/login/provider?next=%2Fui%2Fruns"))

        assert (done.status_code, done.headers["location"]) == (303, "/ui/runs")
        cookie = done.headers.get_list("set-cookie")[0]
        assert all(word in cookie for word in ("nimbus=", "HttpOnly", "SameSite=lax", "Path=/"))
        lasts_s = int(cookie.partition("Max-Age=")[2].partition(";")[0])
        assert 500 < lasts_s <= 600, "no longer than the ID token"
        who = browser.get(WHOAMI).json()
        assert (who["name"], who["role"], who["teams"]) == ("oidc:ada", "author", ["sales"])
        session = browser.cookies["nimbus"]
        answers = [one_of.ask(cookie=session) for one_of in (one, other, foreign)]
        browser.post("/ui/logout")
        after = browser.get(WHOAMI)

    assert [answer.status_code for answer in answers] == [200, 200, 401]
    assert code(after) == (401, "token_missing")


def test_login_that_one_scheduler_began_is_ended_by_another(cluster: Cluster) -> None:
    """Both have one name, so the provider may redirect to the other scheduler."""
    one, other = cluster.scheduler(), cluster.scheduler()
    with one.browser() as browser, httpx.Client(timeout=30, verify=TLS) as second:
        back = at_provider(browser)
        second.cookies = browser.cookies
        done = second.get(back.replace(one.url, other.url), headers={"Host": one.url.removeprefix("http://")})

    assert (done.status_code, "nimbus" in done.cookies) == (303, True)


def test_long_login_of_the_provider_gives_a_session_of_twelve_hours_at_most(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    cluster.issuer.lasts_s = 10**9
    with scheduler.browser() as browser:
        done = browser.get(at_provider(browser))

    assert "Max-Age=43200" in done.headers.get_list("set-cookie")[0]


def test_session_has_the_role_that_its_groups_have_now(cluster: Cluster) -> None:
    before = cluster.scheduler()
    lower = cluster.scheduler(groups={"data-platform": GroupRole(role=AccessRole.VIEWER)})
    none = cluster.scheduler(groups={"readers": GroupRole(role=AccessRole.VIEWER)})
    with before.browser() as browser:
        browser.get(at_provider(browser))
        session = browser.cookies["nimbus"]
    answers = [one.ask(cookie=session) for one in (before, lower, none)]

    assert [answer.json().get("role") for answer in answers] == ["admin", "viewer", None]
    assert code(answers[2]) == (401, "token_missing")


def test_login_without_a_role_begins_no_session_and_says_why(cluster: Cluster, scheduler: Scheduler) -> None:
    cluster.issuer.person["groups"] = ["x"]
    with scheduler.browser() as browser:
        done = browser.get(at_provider(browser))

        assert (done.status_code, "none of their groups has a role" in done.text) == (403, True)
        assert code(browser.get(WHOAMI)) == (401, "token_missing")


def test_code_and_state_are_of_use_once_and_in_the_browser_that_began(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    with scheduler.browser() as browser, scheduler.browser() as victim:
        back = at_provider(browser)
        stolen = dict(browser.cookies)
        forced = victim.get(back)
        assert browser.get(back).status_code == 303
        again = browser.get(back)
        victim.cookies.update(stolen)
        replayed = victim.get(back)

    assert [(answer.status_code, "nimbus" in answer.cookies) for answer in (forced, again, replayed)] == [
        (400, False)
    ] * 3
    assert "not begun in this browser" in forced.text
    assert "not begun in this browser" in again.text
    assert "invalid_grant" in replayed.text, "the cookie was copied, and the provider knows the code no more"


@pytest.mark.parametrize("change", ["state", "cookie", "iss", "other_cluster", "session_as_state"])
def test_login_that_was_tampered_with_is_refused_before_the_provider_is_asked(
    cluster: Cluster, scheduler: Scheduler, change: str
) -> None:
    with scheduler.browser() as browser:
        back = httpx.URL(at_provider(browser))
        if change in ("state", "iss"):
            back = back.copy_set_param(change, "https://other.example.com")
        elif change == "other_cluster":
            foreign = cluster.scheduler(key=b"o" * 32)
            with foreign.browser() as other:
                back = back.copy_set_param("state", httpx.URL(at_provider(other)).params["state"])
                browser.cookies = other.cookies
        else:
            carried = browser.cookies["nimbus-login"]
            made = carried.replace(".%2Fui", ".%2Fui%2Fruns") if change == "cookie" else "0.9999999999.0"
            browser.cookies.set("nimbus-login", made, domain="127.0.0.1")
        done = browser.get(back)

    assert (done.status_code, "nimbus" in done.cookies) == (400, False)
    assert cluster.issuer.asked["/token"] == 0


@pytest.mark.parametrize("wrong", ["no nonce", "other nonce", "other client", "expired", "none"])
def test_id_token_of_another_login_or_client_begins_no_session(
    cluster: Cluster, scheduler: Scheduler, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = cluster.issuer
    if wrong == "no nonce":
        issuer.forget_nonce = True
    else:
        changes: dict[str, dict[str, Any]] = {
            "other nonce": {"nonce": "x" * 43},
            "other client": {"aud": [CLIENT_ID, "other"], "azp": "other"},
            "expired": {"exp": int(time.time()) - 100},
            "none": {},
        }
        make = issuer.token
        unsigned = jwt.encode({"sub": "ada"}, "", algorithm="none", headers={"kid": "one"})
        monkeypatch.setattr(
            issuer,
            "token",
            lambda **claims: unsigned if wrong == "none" else make(**claims | changes[wrong]),
        )
    with scheduler.browser() as browser:
        done = browser.get(at_provider(browser))

    assert (done.status_code, "nimbus" in done.cookies) == (401, False)
    assert issuer.asked["/token"] == 1


def test_provider_that_refuses_is_told_and_its_words_are_no_markup(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    with scheduler.browser() as browser:
        state = httpx.URL(at_provider(browser)).params["state"]
        query = {"state": state, "error": "<script>access_denied"}
        done = browser.get("/ui/login/callback", params=query)

    assert (done.status_code, "&lt;script&gt;access_denied" in done.text) == (400, True)


def test_logins_that_fail_often_are_held_up_and_logged_no_more(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    scheduler.world.gate._failures = RateLimit(1e-9, 2)
    with capture_logs() as lines, scheduler.browser() as browser:
        answers = [browser.get("/ui/login/callback?code=x&state=y") for _ in range(4)]

    assert [answer.status_code for answer in answers] == [400, 400, 429, 429]
    assert "retry-after" in answers[-1].headers
    assert [line["event"] for line in lines].count("login_refused") == 2
    assert scheduler.counted("nimbus_auth_failures_total", reason="login_refused") == 4


def test_login_leads_to_pages_of_this_server_alone(cluster: Cluster, scheduler: Scheduler) -> None:
    for after in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/ui\r\nX: y",
        "/ui" + "x" * 5000,
    ):
        with scheduler.browser() as browser:
            begun = browser.get("/ui/login/provider", params={"next": after})
            done = browser.get(agreed(begun))
        assert (done.status_code, done.headers["location"]) == (303, "/ui"), after


def test_cookies_of_a_login_over_tls_are_for_this_host_and_tls_alone(cluster: Cluster) -> None:
    scheduler = cluster.scheduler()
    scheduler.world.gate.secure = True
    services = replace(scheduler.world.services(), provider=scheduler.provider, browser_login=True)
    answers = []
    for registered in (None, "https://nimbus.example.com/ui/login/callback"):
        app = create_app(replace(services, metrics=CollectorRegistry(), redirect_uri=registered))
        client = TestClient(app, base_url="https://localhost", follow_redirects=False)
        answers.append(client.get("/ui/login/provider"))
    scheduler.world.gate.secure = False

    assert [httpx.URL(answer.headers["location"]).params["redirect_uri"] for answer in answers] == [
        "https://localhost/ui/login/callback",
        "https://nimbus.example.com/ui/login/callback",
    ]
    cookie = answers[0].headers["set-cookie"]
    assert all(word in cookie for word in ("__Host-nimbus-login=", "Secure", "HttpOnly", "Path=/;"))


def test_session_that_no_browser_would_keep_is_not_begun(cluster: Cluster) -> None:
    names = [f"group-{number:03}-{'x' * 30}" for number in range(100)]
    scheduler = cluster.scheduler(groups={name: GroupRole(role=AccessRole.VIEWER) for name in names})
    cluster.issuer.person["groups"] = names
    with scheduler.browser() as browser:
        done = browser.get(at_provider(browser))

    assert (done.status_code, "too many groups" in done.text) == (403, True)
    assert "nimbus" not in done.cookies


def test_logins_that_wait_for_the_provider_are_bounded(cluster: Cluster, scheduler: Scheduler) -> None:
    assert scheduler.provider.current is not None
    scheduler.provider.current._logins = asyncio.Semaphore(0)
    with scheduler.browser() as browser:
        done = browser.get(at_provider(browser))

    assert (done.status_code, "too many logins wait" in done.text) == (503, True)
    assert cluster.issuer.asked["/token"] == 0


def test_provider_that_is_down_is_told_and_a_token_still_lets_in(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    cluster.issuer.down = True
    with scheduler.browser() as browser:
        page = browser.get("/ui/login/provider")

    assert (page.status_code, 'name="token"' in page.text) == (503, True)


def test_secrets_of_a_login_are_neither_in_its_cookie_nor_in_its_address(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    with scheduler.browser() as browser:
        begun = browser.get("/ui/login/provider")
        query = httpx.URL(begun.headers["location"]).params
        cookie = begun.headers["set-cookie"]

    assert query["code_challenge_method"] == "S256"
    assert query["redirect_uri"] == f"{scheduler.url}/ui/login/callback"
    assert query["nonce"] not in cookie
    assert CLIENT_SECRET not in str(query)
    assert all(word in cookie for word in ("HttpOnly", "SameSite=lax", "Max-Age=600"))


def test_login_page_takes_a_token_of_the_provider_as_well(cluster: Cluster, scheduler: Scheduler) -> None:
    with scheduler.browser() as browser:
        done = browser.post("/ui/login", data={"token": cluster.issuer.token(), "next": "/ui/runs"})

        assert (done.status_code, done.headers["location"]) == (303, "/ui/runs")
        assert browser.get(WHOAMI).json()["name"] == "oidc:ada"


def test_command_line_takes_a_token_of_the_provider_and_reads_a_file_for_each_request(
    cluster: Cluster, scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nimbus(*words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(words), input=stdin)

    monkeypatch.setenv("NIMBUS_SERVER", scheduler.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NIMBUS_TOKEN", "NIMBUS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    done = nimbus("login", stdin=f"{cluster.issuer.token()}\n")
    assert (done.exit_code, "you are oidc:ada (admin)" in done.stdout) == (0, True)
    assert nimbus("login", stdin="something\n").exit_code == 2

    file = tmp_path / "token"
    monkeypatch.setenv("NIMBUS_TOKEN_FILE", str(file))
    assert nimbus("pipeline", "list").exit_code == 2, "there is no such file"
    file.write_text(cluster.issuer.token(exp=1))
    assert nimbus("pipeline", "list").exit_code == 7
    file.write_text(f"{cluster.issuer.token(groups='readers')}\n")
    assert nimbus("pipeline", "list").exit_code == 0
    assert nimbus("pipeline", "pause", "sums").exit_code == 7


def test_stream_of_events_ends_with_the_login(cluster: Cluster, scheduler: Scheduler) -> None:
    """`tests/nimbus/integration/test_api_events.py` shows that streams check the login."""
    gate = scheduler.world.gate
    assert gate.jwts is not None
    scheduler.ask(cluster.issuer.token())
    found = gate.jwts.bearer(cluster.issuer.token(), "10.0.0.1")
    assert found.expires_at is not None

    assert gate.still_admits(found, found.expires_at.replace(year=2000))
    assert not gate.still_admits(found, found.expires_at)


def _becomes(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()
