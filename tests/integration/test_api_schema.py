"""The API held against its own schema by generated requests, and against what HTTP asks of every server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

# The same requests in each run: those that the limits in the schema ask for, and a few drawn ones.
CONFIG = """
color = false
# A busy machine is no fault of the API.
request-timeout = 60
suppress-health-check = ["all"]

[generation]
deterministic = true
max-examples = 5

[phases]
coverage.enabled = {coverage}
stateful.enabled = false

[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", {more}]
"""

ENDLESS = "/api/v1/events"
"""A stream; see `test_api_events`."""


@pytest.fixture
def populated(world: Any, api_url: str) -> str:
    """The base URL of a server that has runs in several states."""
    world.opened(world.new_run("r1"), "extract")
    world.failed("r2")
    return api_url


def test_api_answers_as_its_schema_says(populated: str, tmp_path: Path) -> None:
    _schemathesis(populated, tmp_path, coverage="true")


def test_api_fails_with_503_alone_while_zookeeper_is_away(world: Any, populated: str, tmp_path: Path) -> None:
    world.cluster.set_down(True)

    _schemathesis(populated, tmp_path, more='"503"')


def _schemathesis(url: str, folder: Path, *, coverage: str = "false", more: str = "") -> None:
    """Send generated requests to every operation; each answer must be as the schema says."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.format(coverage=coverage, more=more))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run"),
            *("--exclude-path", ENDLESS, f"{url}/openapi.json"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )

    if done.returncode:
        pytest.fail(done.stdout)
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    operations = sum(len(methods) for path, methods in paths.items() if path != ENDLESS)
    assert f"{operations} passed" in done.stdout


@pytest.mark.parametrize(
    "path", ["/healthz", "/metrics", "/openapi.json", "/api/v1/status", "/api/v1/runs/none"]
)
def test_head_is_answered_like_get_without_a_body(api_url: str, path: str) -> None:
    got, parts = httpx.get(api_url + path), urlsplit(api_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
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
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_refused_method_names_all_methods_of_the_path(
    api_url: str, method: str, path: str, allowed: str
) -> None:
    answer = httpx.request(method, api_url + path)

    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


def _to_its_end(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
