"""Hostile names, headers and bodies on every route of a real server: refused, and nothing else happens."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import structlog

from nimbus.api.middleware import MAX_BODY_BYTES
from nimbus.telemetry import logging as logs

NAMES = {
    "parent folder": "..",
    "path": "../../../../etc/passwd",
    "path of Windows": "..\\..\\boot.ini",
    "absolute path": "/etc/passwd",
    "header": "x\r\nSet-Cookie: nimbus=1",
    "log line": "x\n2026-01-01 [critical] owned",
    "escape sequence": "\x1b[2J\x1b[31mowned",
    "end of a string": "x\x00y",
    "markup": "<script>alert(1)</script>",
    "other direction": "\u202egnp.exe",
    "template": "{{7*7}}",
    "shell": "$(touch owned);`id`",
    "node of ZooKeeper": "zookeeper/quota",
    "very long": "x" * 4000,
}
"""Texts that could be used as names, and are not valid."""

_PARAMETER = re.compile(r"{\w+}")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The log lines of a scheduler, in their form for people."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("debug", "console", stream)
    yield stream
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def web(api_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api_url, timeout=60) as client:
        yield client


def _quoted(name: str) -> str:
    """Quote a text for an address, with its dots, because clients remove `..` from addresses."""
    return quote(name, safe="").replace(".", "%2E")


def _routes(web: httpx.Client) -> list[tuple[str, str]]:
    found = web.get("/openapi.json").json()["paths"]
    routes = [(method, path) for path, methods in found.items() for method in methods]
    pages = ("runs/{run}", "runs/{run}/tasks/{task}", "runs/{run}/tasks/{task}/log", "pipelines/{name}")
    return [*routes, *(("get", f"/ui/{page}") for page in pages), ("get", "/ui/static/{version}/{name}")]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_no_route_takes_a_hostile_name(world: Any, web: httpx.Client, logged: io.StringIO, name: str) -> None:
    routes = [(method, path) for method, path in _routes(web) if _PARAMETER.search(path)]
    world.deciding = False

    answers = {}
    for method, path in routes:
        asked = _PARAMETER.sub(lambda _: _quoted(name), path)
        body = {"json": {}} if method in ("post", "put", "patch") else {}
        answers[method, path] = web.request(method, asked, **body)

    assert {key: answer.status_code for key, answer in answers.items() if answer.status_code >= 500} == {}
    assert {key for key, answer in answers.items() if answer.status_code < 400} == set()
    assert {key for key, answer in answers.items() if "set-cookie" in answer.headers} == set()
    assert {key for key, answer in answers.items() if "<script>alert" in _markup_of(answer)} == set()
    assert "root:" not in "".join(answer.text for answer in answers.values())
    assert world.reader.commands() == ()
    _is_not_torn(logged)
    assert web.get("/healthz").status_code == 200


def _markup_of(answer: httpx.Response) -> str:
    return answer.text if answer.headers.get("content-type", "").startswith("text/html") else ""


def _is_not_torn(logged: io.StringIO) -> None:
    text = logged.getvalue()
    assert "\x1b" not in text
    assert not re.search(r"^2026-01-01 \[critical\] owned", text, re.MULTILINE)


QUERIES = (
    "/ui/search?q={}",
    "/api/v1/runs?state={}",
    "/api/v1/runs?cursor={}",
    "/ui/runs?pipeline={}",
    "/ui/login?next={}",
)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_no_query_adds_a_header_or_leads_elsewhere(web: httpx.Client, logged: io.StringIO, name: str) -> None:
    for path in QUERIES:
        answer = web.get(path.format(_quoted(name)))

        assert answer.status_code < 500, path
        assert "set-cookie" not in answer.headers, path
        assert answer.headers.get("location", "/ui").startswith("/ui"), path
    _is_not_torn(logged)


HEADERS = ("Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "X-Nimbus-User")
VALUES = ("\x7f" * 9, "x" * 30_000, '"; DROP', "a\tb", "é" * 300)


def test_no_header_breaks_a_write(world: Any, web: httpx.Client) -> None:
    world.deciding = False
    for header, value in product(HEADERS, VALUES):
        answer = web.post("/api/v1/pipelines/sums/pause", headers={header: value.encode()})

        assert answer.status_code in (202, 400, 412, 422, 431), (header, value)
    assert web.get("/healthz").status_code == 200


BODIES = {
    "above the limit": b'{"reason": "' + b"x" * MAX_BODY_BYTES + b'"}',
    "deeper than a parser goes": b"[" * 100_000,
    "no JSON": b"\x00\xff\xfe",
    "a number of ten thousand digits": b'{"reason": ' + b"9" * 10_000 + b"}",
    "half of a pair": json.dumps({"reason": "\ud800", "pipeline": "\ud800", "message": "\ud800"}).encode(),
    "not an object": b"[]",
    "many keys": json.dumps({f"k{n}": n for n in range(10_000)}).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_no_route_takes_a_hostile_body(world: Any, web: httpx.Client, body: bytes) -> None:
    found = web.get("/openapi.json").json()["paths"]
    world.deciding = False
    answers = {}
    for path, methods in found.items():
        for method, said in methods.items():
            if "requestBody" in said:
                asked = _PARAMETER.sub("r1", path)
                answers[method, path] = web.request(
                    method, asked, content=body, headers={"Content-Type": "application/json"}
                )

    assert len(answers) > 5
    assert {
        key: answer.status_code for key, answer in answers.items() if not 400 <= answer.status_code < 500
    } == {}
    assert world.reader.commands() == ()
    assert web.get("/healthz").status_code == 200


def test_every_answer_keeps_other_sites_from_framing_it(web: httpx.Client) -> None:
    for path in ("/ui/", "/ui/none", "/ui/runs/%3Cscript%3E", "/ui/login"):
        answer = web.get(path)

        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert answer.headers["x-content-type-options"] == "nosniff", path
