"""Checks the API with generated requests: against its own schema, and against the rules of HTTP."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from nimbus.domain.commands import ControlBackfill, StopRun
from tests.nimbus import api_fuzz
from tests.thorough import thorough

SLOW = pytest.mark.timeout(1200)
"""Thousands of requests take a minute, or several on a busy machine."""
CHAINED = r"^(runs\.(start|get|stop|rerun)|explanations\.run|backfills\..*|cluster\.command)$"
"""Operations whose links are followed."""


@pytest.fixture
def populated(world: Any, api_url: str) -> str:
    """The base URL of a server that has runs in several states."""
    world.opened(world.new_run("r1"), "extract")
    world.failed("r2")
    return api_url


@pytest.mark.own_application
@SLOW
def test_api_answers_as_its_schema_says(populated: str, tmp_path: Path) -> None:
    _to_every_operation(populated, tmp_path, examples=2)


@thorough
@pytest.mark.own_application
@SLOW
def test_api_answers_as_its_schema_says_at_all_limits_of_it(populated: str, tmp_path: Path) -> None:
    _to_every_operation(populated, tmp_path, phases="coverage")


@pytest.mark.own_application
@SLOW
def test_api_fails_with_503_alone_while_zookeeper_is_away(world: Any, populated: str, tmp_path: Path) -> None:
    world.cluster.available = False

    _to_every_operation(populated, tmp_path, more='"503"', examples=1)


@pytest.mark.own_application
@SLOW
def test_links_lead_from_what_is_created_to_what_reads_and_changes_it(
    world: Any, api_url: str, tmp_path: Path
) -> None:
    usual = {"pipeline": "sums", "from": "2026-01-01", "to": "2026-01-05", "every": "1d"}

    _schemathesis(api_url, tmp_path, phases="stateful", operations=CHAINED, examples=8, usual=usual)

    # At the ends of chains: the API queues these only for an existing run or backfill.
    assert {StopRun, ControlBackfill} <= {type(command) for command in world.accepted}


def _to_every_operation(url: str, folder: Path, **how: Any) -> None:
    said = _schemathesis(url, folder, **how)

    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    operations = sum(len(methods) for path, methods in paths.items() if path != api_fuzz.ENDLESS)
    assert f"{operations} passed" in said


def _schemathesis(url: str, folder: Path, **how: Any) -> str:
    """Send generated requests, see `api_fuzz.command`. Each answer must match the schema."""
    done = subprocess.run(
        api_fuzz.command(url, folder, **how),
        cwd=folder,
        env=api_fuzz.ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    if done.returncode:
        pytest.fail(done.stdout)
    return done.stdout


@pytest.mark.parametrize(
    "path", ["/healthz", "/metrics", "/openapi.json", "/api/v1/status", "/api/v1/runs/none"]
)
def test_head_is_answered_like_get_without_a_body(api_url: str, path: str) -> None:
    got, parts = httpx.get(api_url + path, timeout=60), urlsplit(api_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = _to_its_end(connection).partition(b"\r\n\r\n")

    assert head.startswith(f"HTTP/1.1 {got.status_code} ".encode())
    assert f"content-type: {got.headers['content-type']}".encode() in head.lower()
    assert body == b""


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/v1/runs", "GET, HEAD, POST"),
        ("OPTIONS", "/api/v1/pipelines/sums", "DELETE, GET, HEAD"),
        ("HEAD", "/api/v1/pipelines/sums/pause", "POST"),
        ("POST", "/api/v1/pools/db", "DELETE, GET, HEAD, PUT"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_refused_method_names_all_methods_of_the_path(
    api_url: str, method: str, path: str, allowed: str
) -> None:
    answer = httpx.request(method, api_url + path, timeout=60)

    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


def _to_its_end(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
